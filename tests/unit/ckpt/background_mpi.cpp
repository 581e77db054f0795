// SPDX-License-Identifier: Apache-2.0
// Saves beside other work, by 1, 2 and 4 ranks: what is published is the state of the step boundary, whatever happens to it
// afterwards; the caller's collectives go on meanwhile; one rank's failure is everybody's.
#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <aerie/base/error.hpp>
#include <aerie/ckpt/background_save.hpp>
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
struct Lab {
  Comm world = Comm::borrow(MPI_COMM_WORLD);
  std::optional<aerie::test::TempDir> own;
  fs::path path;
  std::vector<std::byte> staging = std::vector<std::byte>(std::size_t{20} << 20);
  Lab() {
    if (world.is_root()) own.emplace();
    path = world.broadcast(own ? own->path().string() : std::string{});
  }
  ~Lab() { world.barrier(); }
  ckpt::SaveRequest request(std::int64_t step, const aerie::test::Vectors& vectors) const {
    return make_request(path, step, vectors, world.rank(), world.size());
  }
  /// As the trainer does: a collective a step, which also carries "ready".
  ckpt::Saved train_on(ckpt::BackgroundSave& save) const {
    for (;;) {
      if (world.sum(std::int64_t{save.ready() ? 1 : 0}) != world.size()) continue;
      if (auto saved = save.advance()) return *saved;
    }
  }
};
}  // namespace

TEST(BackgroundSave, PublishesTheStateOfItsBoundary) {
  Lab lab;
  const auto kept = make_vectors(1);
  auto vectors = kept;
  ckpt::BackgroundSave save(lab.world, lab.request(7, vectors), lab.staging);
  for (auto& [name, bytes] : vectors) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});  // training goes on
  const auto saved = lab.train_on(save);
  EXPECT_EQ(saved.path, lab.path / "step-00000007");
  EXPECT_GE(saved.elapsed_s, saved.blocked_s);
  EXPECT_EQ(ckpt::verify(saved.path), std::vector<std::string>{});
  const auto found = ckpt::open(saved.path);
  EXPECT_EQ(found.manifest_hash, saved.manifest_hash);
  for (const auto& [name, bytes] : kept) EXPECT_TRUE(ckpt::read_vector(found, name) == bytes) << name;
  EXPECT_EQ(names_in(lab.path), std::set<std::string>{"step-00000007"});
}

TEST(BackgroundSave, WaitsWhenAskedTo) {
  Lab lab;
  const auto vectors = make_vectors(1);
  ckpt::BackgroundSave save(lab.world, lab.request(1, vectors), lab.staging);
  EXPECT_EQ(save.step(), 1);
  const auto saved = save.wait();
  EXPECT_EQ(ckpt::verify(saved.path), std::vector<std::string>{});
}

TEST(BackgroundSave, CopiesThroughTheGivenFunction) {
  Lab lab;
  const auto vectors = make_vectors(1);
  std::size_t copied = 0;
  const auto request = lab.request(1, vectors);
  ckpt::BackgroundSave save(lab.world, request, lab.staging, [&](auto from, auto to) {
    copied += from.size();
    std::copy(from.rbegin(), from.rend(), to.begin());  // told apart from a plain copy
  });
  const auto saved = save.wait();
  std::size_t expected = 0;
  for (const auto& c : request.chunks) expected += c.bytes.size();
  EXPECT_EQ(copied, expected);
  const auto found = ckpt::open(saved.path);
  auto exp_avg = ckpt::read_vector(found, "exp_avg");  // one whole chunk
  std::reverse(exp_avg.begin(), exp_avg.end());
  EXPECT_TRUE(exp_avg == vectors[1].second);
}

TEST(BackgroundSave, FailureOfAnyRankFailsAllAndKeepsThePrevious) {
  Lab lab;
  const auto vectors = make_vectors(2);
  ckpt::save(lab.world, lab.request(1, make_vectors(1)));
  std::signal(SIGXFSZ, SIG_IGN);
  for (int failing = 0; failing < lab.world.size(); ++failing) {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit now = before;
    now.rlim_cur = 100;  // every write of this process beyond that fails with EFBIG: a real error of one rank's thread
    if (lab.world.rank() == failing) ::setrlimit(RLIMIT_FSIZE, &now);
    std::optional<base::Error> seen;
    {
      ckpt::BackgroundSave save(lab.world, lab.request(2, vectors), lab.staging);
      seen = base::capture([&] { lab.train_on(save); });
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    ASSERT_TRUE(seen) << "rank " << failing << " could not write and this rank did not notice";
    EXPECT_EQ(seen->code(), base::ExitCode::io);
    EXPECT_NE(std::string(seen->what()).find("File too large"), std::string::npos) << seen->what();
    lab.world.barrier();
    EXPECT_EQ(names_in(lab.path), std::set<std::string>{"step-00000001"});
    EXPECT_EQ(ckpt::latest(lab.path, false)->step, 1);
    lab.world.barrier();
  }
}

TEST(BackgroundSave, KeepsAWholeOneThatIsThere) {
  Lab lab;
  const auto first = ckpt::save(lab.world, lab.request(3, make_vectors(1)));
  const auto vectors = make_vectors(2);
  ckpt::BackgroundSave save(lab.world, lab.request(3, vectors), lab.staging);
  EXPECT_EQ(lab.train_on(save).manifest_hash, first.manifest_hash);
}

TEST(BackgroundSave, OneOfAnotherConfigurationIsSetAside) {
  Lab lab;
  const auto first = ckpt::save(lab.world, lab.request(3, make_vectors(1)));
  const auto vectors = make_vectors(2);
  auto request = lab.request(3, vectors);
  request.identity["lr"] = "another";
  const auto second = ckpt::save(lab.world, request);
  EXPECT_NE(second.manifest_hash, first.manifest_hash);
  EXPECT_EQ(ckpt::latest(lab.path, false)->manifest_hash, second.manifest_hash);
  EXPECT_EQ(names_in(lab.path), (std::set<std::string>{"step-00000003", "step-00000003.bad"}));
  lab.world.barrier();
}

TEST(BackgroundSave, GivenUpLeavesNothingPublished) {
  Lab lab;
  const auto vectors = make_vectors(1);
  { ckpt::BackgroundSave save(lab.world, lab.request(1, vectors), lab.staging); }
  lab.world.barrier();
  EXPECT_FALSE(ckpt::latest(lab.path, false));
  if (lab.world.is_root()) ckpt::remove_leftovers(lab.path);
  lab.world.barrier();
  EXPECT_EQ(names_in(lab.path), std::set<std::string>{});
}
