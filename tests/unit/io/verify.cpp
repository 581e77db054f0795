// SPDX-License-Identifier: Apache-2.0
// verify finds each kind of damage, says where, and gives the documented code; a clean store stays clean.
#include <aerie/io/verify.hpp>

#include <algorithm>

#include <aerie/io/contiguous_file.hpp>

#include "store_fixture.hpp"

#ifdef __SANITIZE_ADDRESS__
/// HDF5 1.10 loses the header of an object that it cannot decode, and this test damages metadata.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
#endif

namespace aerie::test {
namespace {

using base::ExitCode;
using io::Store;

class Verify : public ::testing::Test {
 protected:
  Verify() : store(create_small(dir / "s")) {
    write_parts(store, all_parts(store), small_policy());
    store.refresh();
  }
  io::VerifyReport run(bool full = true, int threads = 1) const {
    io::VerifyOptions o;
    o.full = full;
    o.threads = threads;
    return io::verify_store(dir / "s", o);
  }
  std::filesystem::path part(std::size_t i) const { return dir / "s" / store.parts()[i].file; }
  io::DatasetInfo dataset(std::size_t i, const std::string& name) const {
    return io::ContiguousFile::open(part(i)).dataset(name);
  }
  void expect(const io::VerifyReport& r, ExitCode code, const std::string& file, const std::string& text) const {
    EXPECT_EQ(r.code(), code);
    bool found = false;
    std::string all;
    for (const auto& f : r.findings) {
      found |= f.file == file && contains(f.text, text);
      all += f.file + ": " + f.text + "\n";
    }
    EXPECT_TRUE(found) << "wanted '" << text << "' of " << file << " in:\n" << all;
  }

  TempDir dir;
  Store store;
};

TEST_F(Verify, CleanStore) {
  for (const int threads : {1, 3}) {
    const auto r = run(true, threads);
    EXPECT_EQ(r.code(), ExitCode::done);
    EXPECT_EQ(r.counts.done, 20);
    EXPECT_EQ(r.counts.failed, 3);
    EXPECT_EQ(r.counts.total, 23);
    EXPECT_EQ(r.parts.size(), store.parts().size());
    EXPECT_EQ(r.bytes_hashed, store.counts().total_tokens * (8 * hidden + 5));
  }
  EXPECT_EQ(run(false).bytes_hashed, 0);
}

TEST_F(Verify, FlippedBitInEachDataset) {
  for (const std::string name : {"aux", "last", "input_ids", "loss_mask"}) {
    const auto d = dataset(2, name);
    flip_bit(part(2), d.offset + d.bytes() / 2);
    EXPECT_EQ(run(false).code(), ExitCode::done) << "data are not read without --full";
    const auto r = run();
    expect(r, ExitCode::data, store.parts()[2].file, "checksum is");
    EXPECT_EQ(r.findings.size(), 1U);
    EXPECT_GE(r.findings[0].sample, store.parts()[2].first);
    flip_bit(part(2), d.offset + d.bytes() / 2);
  }
  for (const std::string name : {"row_offset", "sample_id"}) {
    const auto d = dataset(0, name);
    flip_bit(part(0), d.offset + 8, 5);
    EXPECT_EQ(run(false).code(), ExitCode::data) << name;
    flip_bit(part(0), d.offset + 8, 5);
  }
  EXPECT_EQ(run().code(), ExitCode::done);
}

TEST_F(Verify, FlippedBitInState) {
  const auto at = dataset(1, "state").offset + 16 + 3;
  flip_bit(part(1), at);
  const auto r = run(false);
  expect(r, ExitCode::data, store.parts()[1].file, "torn");
  EXPECT_EQ(r.findings.at(0).sample, store.parts()[1].first + 1);
  EXPECT_EQ(r.counts.torn, 1);
  EXPECT_EQ(r.counts.pending, 1);
}

TEST_F(Verify, FlippedBitAnywhereInMetadata) {
  // Every byte outside the data extents, by sampling: each flip must be found.
  std::vector<std::pair<std::int64_t, std::int64_t>> data;
  for (const std::string name : {"aux", "last", "input_ids", "loss_mask", "state"})
    data.emplace_back(dataset(0, name).offset, dataset(0, name).bytes());
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(part(0)));
  int tried = 0;
  for (std::int64_t at = 0; at < size; at += at < 9000 ? 97 : 1511) {
    if (std::any_of(data.begin(), data.end(), [&](const auto& e) { return at >= e.first && at < e.first + e.second; })) continue;
    flip_bit(part(0), at, static_cast<int>(at % 8));
    EXPECT_EQ(run(false).code(), ExitCode::data) << "flip at " << at;
    flip_bit(part(0), at, static_cast<int>(at % 8));
    ++tried;
  }
  EXPECT_GT(tried, 50);
  EXPECT_EQ(run().code(), ExitCode::done);
}

TEST_F(Verify, TruncatedFile) {
  std::filesystem::resize_file(part(1), std::filesystem::file_size(part(1)) - 1);
  EXPECT_EQ(run(false).code(), ExitCode::data);
  EXPECT_THROW(Store::open(dir / "s"), base::DataError);
}

TEST_F(Verify, LongerFile) {
  std::filesystem::resize_file(part(1), std::filesystem::file_size(part(1)) + 1);
  expect(run(false), ExitCode::data, store.parts()[1].file, "bytes long");
}

TEST_F(Verify, MissingPart) {
  std::filesystem::remove(part(1));
  expect(run(false), ExitCode::missing_input, store.parts()[1].file, "no such file");
  EXPECT_THROW(Store::open(dir / "s"), base::MissingInputError);
}

TEST_F(Verify, SwappedParts) {
  std::filesystem::rename(part(0), dir / "x");
  std::filesystem::rename(part(1), part(0));
  std::filesystem::rename(dir / "x", part(1));
  const auto r = run(false);
  expect(r, ExitCode::data, store.parts()[0].file, "part_uuid");
  expect(r, ExitCode::data, store.parts()[1].file, "part_index");
  EXPECT_THROW(Store::open(dir / "s"), base::DataError);
}

TEST_F(Verify, PartOfAnotherStoreWithTheSamePlan) {
  create_small(dir / "t");
  std::filesystem::copy_file(dir / "t" / store.parts()[0].file, part(0), std::filesystem::copy_options::overwrite_existing);
  expect(run(false), ExitCode::data, store.parts()[0].file, "store_uuid");
}

TEST_F(Verify, UnreadablePartIsIo) {
  std::filesystem::remove(part(1));
  std::filesystem::create_symlink(part(1).filename(), part(1));  // a link to itself: ELOOP
  EXPECT_EQ(run(false).code(), ExitCode::io);
}

TEST_F(Verify, ManifestMissingOrDamaged) {
  const auto path = dir / "s" / "manifest.json";
  const auto text = slurp(path);
  for (const std::string word : {"tiny", "\"max_length\": 64", "created"}) {  // one letter inside each
    const auto at = static_cast<std::int64_t>(text.find(word));
    ASSERT_GT(at, 0);
    flip_bit(path, at + 1, 0);
    const auto r = run(false);
    EXPECT_EQ(r.code(), ExitCode::data) << word;
    EXPECT_EQ(r.findings.at(0).file, "manifest.json");
    flip_bit(path, at + 1, 0);
  }
  std::filesystem::resize_file(path, text.size() / 2);
  EXPECT_EQ(run(false).code(), ExitCode::data);
  std::filesystem::remove(path);
  EXPECT_THROW(run(false), base::MissingInputError);
}

TEST_F(Verify, LeftoversAndStrangers) {
  std::ofstream(dir / "s" / "parts" / "part-00000.h5.tmp") << "x";
  expect(run(false), ExitCode::data, "parts/part-00000.h5.tmp", "left behind");
  std::filesystem::rename(dir / "s" / "parts" / "part-00000.h5.tmp", dir / "s" / "parts" / "part-00099.h5");
  expect(run(false), ExitCode::data, "parts/part-00099.h5", "not in the manifest");
}

TEST_F(Verify, TokenIdsOutsideTheVocabulary) {
  io::VerifyOptions o;
  o.full = true;
  o.vocab_size = 10;
  EXPECT_EQ(io::verify_store(dir / "s", o).code(), ExitCode::data);
}

TEST_F(Verify, ShardsCoverEachPartOnce) {
  std::int64_t done = 0;
  for (int shard = 0; shard < 3; ++shard) {
    io::VerifyOptions o;
    o.full = true;
    o.shard = shard;
    o.shards = 3;
    done += io::verify_store(dir / "s", o).counts.done;
  }
  EXPECT_EQ(done, 20);
}

TEST_F(Verify, CompleteMarkerHoldsOnlyWhileItIsTrue) {
  EXPECT_FALSE(io::complete_marker_holds(store));
  io::write_complete_marker(dir / "s", {store.counts(), "", "full"});
  EXPECT_TRUE(io::complete_marker_holds(store));
  EXPECT_EQ(run(false).code(), ExitCode::done);
  store.refresh();
  const auto marker = slurp(dir / "s" / "COMPLETE");
  EXPECT_EQ(io::set_pending(store, std::vector<std::int64_t>{3}, "job 1"), std::vector<std::int64_t>{3});
  store.refresh();
  EXPECT_FALSE(std::filesystem::exists(dir / "s" / "COMPLETE")) << "taken away before it became untrue";
  std::ofstream(dir / "s" / "COMPLETE") << marker;
  EXPECT_FALSE(io::complete_marker_holds(store));
  expect(run(false), ExitCode::data, "COMPLETE", "does not agree");
  write_parts(store, all_parts(store), small_policy());
  store.refresh();
  EXPECT_TRUE(io::complete_marker_holds(store));
  io::write_complete_marker(dir / "s", {store.counts(), "xxh3-128:00", "full"});
  EXPECT_FALSE(io::complete_marker_holds(store));
  expect(run(false), ExitCode::data, "COMPLETE", "another manifest");
  std::ofstream(dir / "s" / "COMPLETE") << "{";
  EXPECT_FALSE(io::complete_marker_holds(store));
  expect(run(false), ExitCode::data, "COMPLETE", "damaged");
}

}  // namespace
}  // namespace aerie::test
