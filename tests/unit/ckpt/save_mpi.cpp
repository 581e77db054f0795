// SPDX-License-Identifier: Apache-2.0
// Saving by 1, 2 and 4 ranks: the same content, and one failure is everybody's.
#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <aerie/base/error.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace ckpt = aerie::ckpt;
namespace fs = std::filesystem;
using aerie::comm::Comm;
using aerie::test::make_request;
using aerie::test::make_vectors;
using aerie::test::names_in;

namespace {
/// A directory of rank 0, known to all; removed when all are through.
struct SharedDir {
  Comm world = Comm::borrow(MPI_COMM_WORLD);
  std::optional<aerie::test::TempDir> own;
  fs::path path;
  SharedDir() {
    if (world.is_root()) own.emplace();
    path = world.broadcast(own ? own->path().string() : std::string{});
  }
  ~SharedDir() { world.barrier(); }
};
/// Every write of this process beyond `bytes` of a file fails with EFBIG while this lives: a real error of one rank alone.
struct WriteLimit {
  rlimit before{};
  explicit WriteLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit now = before;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~WriteLimit() { ::setrlimit(RLIMIT_FSIZE, &before); }
};
/// The manifest without what the rank count may change.
base::Json without_files(base::Json manifest) {
  for (const char* key : {"files", "manifest_hash"}) manifest.erase(key);
  for (auto& c : manifest["chunks"]) {
    c.erase("file");
    c.erase("offset");
  }
  return manifest;
}
}  // namespace

TEST(Save, ReadsBackWholeFromAnyRankCount) {
  SharedDir dir;
  const auto vectors = make_vectors(1);
  base::Json first;
  for (int ranks = 1; ranks <= dir.world.size(); ++ranks) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, dir.world.rank() < ranks ? 0 : MPI_UNDEFINED, dir.world.rank(), &part);
    const auto root = dir.path / ("ranks" + std::to_string(ranks));
    if (part != MPI_COMM_NULL) {
      const auto comm = Comm::own(part);
      const auto saved = ckpt::save(comm, make_request(root, 1200, vectors, comm.rank(), ranks));
      EXPECT_EQ(saved.path, root / "step-00001200");
      EXPECT_EQ(comm.all_gather(saved.manifest_hash),
                std::vector<std::string>(static_cast<std::size_t>(ranks), saved.manifest_hash));
      EXPECT_EQ(ckpt::open(saved.path).manifest_hash, saved.manifest_hash);
    }
    dir.world.barrier();
    const auto found = ckpt::latest(root, false);
    ASSERT_TRUE(found);  // all ranks look at the same directory
    EXPECT_EQ(found->step, 1200);
    EXPECT_EQ(found->manifest.at("position").at("packs"), 4800);
    for (const auto& [name, bytes] : vectors) {
      EXPECT_TRUE(ckpt::read_vector(*found, name) == bytes) << name;
      EXPECT_EQ(ckpt::vector_sha256(*found, name), aerie::test::sha256_of(bytes)) << name;
    }
    EXPECT_EQ(ckpt::verify(found->path), std::vector<std::string>{});
    std::set<std::string> expected{"MANIFEST.json"};
    for (int r = 0; r < std::min(ranks, 5); ++r) expected.insert("chunk-000" + std::to_string(r) + ".bin");
    EXPECT_EQ(names_in(found->path), expected);
    EXPECT_EQ(names_in(root), std::set<std::string>{"step-00001200"});
    if (ranks == 1) first = without_files(found->manifest);
    EXPECT_EQ(without_files(found->manifest), first);
  }
}

TEST(Save, FailureOfAnyRankFailsAllAndKeepsThePrevious) {
  SharedDir dir;
  const auto old_vectors = make_vectors(1), new_vectors = make_vectors(2);
  const int rank = dir.world.rank(), ranks = dir.world.size();
  ckpt::save(dir.world, make_request(dir.path, 1, old_vectors, rank, ranks));
  for (int failing = 0; failing < ranks; ++failing) {
    std::optional<base::Error> seen;
    {
      std::optional<WriteLimit> limit;
      if (rank == failing) limit.emplace(100);  // less than the smallest share of four ranks
      seen = base::capture([&] { ckpt::save(dir.world, make_request(dir.path, 2, new_vectors, rank, ranks)); });
    }
    EXPECT_TRUE(seen) << "rank " << failing << " could not write and this rank did not notice";
    if (seen) {
      EXPECT_EQ(seen->code(), base::ExitCode::io);
      EXPECT_NE(std::string(seen->what()).find("File too large"), std::string::npos) << seen->what();
      const std::string who = ranks > 1 ? "rank " + std::to_string(failing) : "chunk-0000.bin";
      EXPECT_NE(std::string(seen->what()).find(who), std::string::npos) << seen->what();
    }
    dir.world.barrier();
    EXPECT_EQ(names_in(dir.path), std::set<std::string>{"step-00000001"});
    const auto found = ckpt::latest(dir.path, false);
    ASSERT_TRUE(found);
    EXPECT_EQ(ckpt::verify(found->path), std::vector<std::string>{});
    EXPECT_TRUE(ckpt::read_vector(*found, "masters") == old_vectors[0].second);
    dir.world.barrier();
  }
  ckpt::save(dir.world, make_request(dir.path, 2, new_vectors, rank, ranks));  // and the next save of that step works
  dir.world.barrier();
  EXPECT_EQ(ckpt::latest(dir.path, false)->step, 2);
}

TEST(Save, PlaceThatCannotHoldItIsAnError74) {
  SharedDir dir;
  if (dir.world.is_root()) std::ofstream(dir.path / "file") << "x";
  dir.world.barrier();
  const auto vectors = make_vectors(1);
  EXPECT_THROW(ckpt::save(dir.world, make_request(dir.path / "file", 1, vectors, dir.world.rank(), dir.world.size())),
               base::CheckpointError);
}

TEST(Save, ChunksThatDoNotAddUpAreABugOnAllRanks) {
  SharedDir dir;
  const auto vectors = make_vectors(1);
  const int last = dir.world.size() - 1;
  for (const bool twice : {false, true}) {
    auto request = make_request(dir.path, 1, vectors, dir.world.rank(), dir.world.size());
    if (dir.world.rank() == last) twice ? request.chunks.push_back(request.chunks.back()) : request.chunks.pop_back();
    EXPECT_THROW(ckpt::save(dir.world, request), base::Bug);
    dir.world.barrier();
    EXPECT_EQ(names_in(dir.path), std::set<std::string>{});
    dir.world.barrier();
  }
}

TEST(Save, ExistingOneIsKeptWhenWholeAndSetAsideWhenNot) {
  SharedDir dir;
  const int rank = dir.world.rank(), ranks = dir.world.size();
  const auto old_vectors = make_vectors(1), new_vectors = make_vectors(2);
  const auto first = ckpt::save(dir.world, make_request(dir.path, 3, old_vectors, rank, ranks));
  const auto second = ckpt::save(dir.world, make_request(dir.path, 3, new_vectors, rank, ranks, 2));
  EXPECT_EQ(second.manifest_hash, first.manifest_hash);
  EXPECT_TRUE(ckpt::read_vector(ckpt::open(second.path), "masters") == old_vectors[0].second);
  dir.world.barrier();
  if (dir.world.is_root()) {  // one byte, sizes unchanged: only the full check can see it
    std::fstream f(first.path / "chunk-0000.bin", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(1000);
    f.put(static_cast<char>(~static_cast<unsigned char>(old_vectors[0].second[1000])));
  }
  dir.world.barrier();
  const auto third = ckpt::save(dir.world, make_request(dir.path, 3, new_vectors, rank, ranks, 3));
  dir.world.barrier();
  EXPECT_NE(third.manifest_hash, first.manifest_hash);
  EXPECT_EQ(names_in(dir.path), (std::set<std::string>{"step-00000003", "step-00000003.bad"}));
  EXPECT_TRUE(ckpt::read_vector(ckpt::open(third.path), "masters") == new_vectors[0].second);
}

TEST(Save, RemovesTemporaryDirectoriesOfDeadAttempts) {
  SharedDir dir;
  const auto vectors = make_vectors(1);
  if (dir.world.is_root()) fs::create_directories(dir.path / "step-00000001.tmp.1" / "x");
  dir.world.barrier();
  ckpt::save(dir.world, make_request(dir.path, 1, vectors, dir.world.rank(), dir.world.size(), 1));
  dir.world.barrier();
  EXPECT_EQ(names_in(dir.path), std::set<std::string>{"step-00000001"});
}
