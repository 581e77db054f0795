// SPDX-License-Identifier: Apache-2.0
// The draft vocabulary: choice against brute force, checks, the file, the hash.
#include <aerie/interchange/vocab_map.hpp>

#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/philox.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {

std::vector<std::int64_t> ids_of(const VocabMap& map) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < map.draft_size(); ++i) out.push_back(map.target_id(i));
  return out;
}
std::string refusal(const VocabMap& map) {
  try {
    check_vocab_map(map, "somewhere");
  } catch (const base::DataError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("somewhere", 0), 0U);
    return e.what();
  }
  return "accepted";
}
#define EXPECT_SAYS(message, word) EXPECT_NE((message).find(word), std::string::npos) << (message)

TEST(VocabMap, SmallExample) {
  const std::vector<std::int64_t> counts{5, 0, 9, 5, 5, 1};
  const auto map = select_vocab(counts, 3);
  EXPECT_EQ(ids_of(map), (std::vector<std::int64_t>{0, 2, 3}));  // 9, then the lower two of three fives
  EXPECT_EQ(map.d2t, (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(map.t2d, (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(map.counts, counts);
  EXPECT_EQ(map.coverage(), 19.0 / 25.0);
  EXPECT_EQ(refusal(map), "accepted");
  EXPECT_EQ(VocabMap{}.coverage(), 0.0);
  EXPECT_EQ(select_vocab(std::vector<std::int64_t>(4, 0), 2).d2t, (std::vector<std::int64_t>{0, 0}));
}

TEST(VocabMap, AgreesWithBruteForce) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const auto random = [&](std::uint64_t i, std::uint64_t below) {
      return base::random_u64(3, base::Purpose::test, trial, i) % below;
    };
    std::vector<std::int64_t> counts(1 + random(0, 40));
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<std::int64_t>(random(1 + i, 5));  // many ties
    const auto size = static_cast<std::int64_t>(1 + random(99, counts.size()));
    // Brute force: take the best id that is left, one at a time, looking at all of them from 0 up.
    std::set<std::int64_t> chosen;
    while (static_cast<std::int64_t>(chosen.size()) < size) {
      std::int64_t best = -1;
      for (std::int64_t id = 0; id < static_cast<std::int64_t>(counts.size()); ++id)
        if (!chosen.contains(id) && (best < 0 || counts[static_cast<std::size_t>(id)] > counts[static_cast<std::size_t>(best)]))
          best = id;
      chosen.insert(best);
    }
    const auto map = select_vocab(counts, size);
    ASSERT_EQ(ids_of(map), std::vector<std::int64_t>(chosen.begin(), chosen.end())) << trial;
    for (std::int64_t id = 0; id < map.target_size(); ++id) ASSERT_EQ(map.t2d[static_cast<std::size_t>(id)], chosen.contains(id));
    ASSERT_EQ(refusal(map), "accepted");
  }
}

TEST(VocabMap, SizeOutOfRange) {
  const std::vector<std::int64_t> counts{1, 2};
  for (const std::int64_t size : {-1, 0, 3}) EXPECT_THROW(select_vocab(counts, size), base::ConfigError) << size;
  EXPECT_EQ(select_vocab(counts, 2).draft_size(), 2);
}

TEST(VocabMap, CheckRefuses) {
  const VocabMap good{{1, 2, 2}, {0, 1, 0, 1, 1, 0}, {}};  // ids 1, 3, 4
  EXPECT_EQ(refusal(good), "accepted");
  auto map = good;
  map.d2t = {1, 0, 2};  // 1, 1, 4
  EXPECT_SAYS(refusal(map), "entry 1");
  EXPECT_SAYS(refusal(map), "not above");
  map.d2t = {4, 4, 4};  // 4, 5, 6
  EXPECT_SAYS(refusal(map), "outside [0, 6)");
  map.d2t = {-1, 2, 2};
  EXPECT_SAYS(refusal(map), "target id -1");
  map.d2t = {1, std::numeric_limits<std::int64_t>::max(), 2};
  EXPECT_SAYS(refusal(map), "outside");
  map.d2t = {1, 3, 4};  // absolute; as offsets 1, 4, 6
  EXPECT_SAYS(refusal(map), "absolute ids");
  map = {{0, 1, 3}, {1, 1, 0, 1, 0, 0}, {}};  // absolute; as offsets 0, 2, 5 would rise too, but t2d knows
  EXPECT_SAYS(refusal(map), "absolute ids");
  map = good;
  map.t2d = {0, 1, 0, 1, 0, 1};
  EXPECT_SAYS(refusal(map), "t2d");
  map.t2d = {0, 1, 0, 1, 1, 1};
  EXPECT_SAYS(refusal(map), "t2d");
  map.t2d = {0, 1, 0, 2, 1, 0};
  EXPECT_SAYS(refusal(map), "0 and 1");
  map.t2d = {1, 1};
  EXPECT_SAYS(refusal(map), "3 entries");
  map = good;
  map.counts = {1};
  EXPECT_SAYS(refusal(map), "counts");
  EXPECT_SAYS(refusal(VocabMap{}), "empty");
}

TEST(VocabMap, FileRoundTrip) {
  const test::TempDir tmp;
  const auto map = select_vocab(std::vector<std::int64_t>{4, 1, 0, 7, 7}, 3);
  write_vocab_map(tmp / "vocab.safetensors", map);
  const auto file = SafetensorsFile::open(tmp / "vocab.safetensors");
  EXPECT_EQ(file.info("d2t").dtype, Dtype::i64);
  EXPECT_EQ(file.info("t2d").dtype, Dtype::boolean);
  EXPECT_EQ(file.info("counts").dtype, Dtype::i64);
  auto back = read_vocab_map(tmp / "vocab.safetensors");
  EXPECT_EQ(back.d2t, map.d2t);
  EXPECT_EQ(back.t2d, map.t2d);
  EXPECT_EQ(back.counts, map.counts);
  back.counts.clear();
  write_vocab_map(tmp / "no_counts.safetensors", back);
  EXPECT_TRUE(read_vocab_map(tmp / "no_counts.safetensors").counts.empty());

  test::TensorSet set;
  set.add("d2t", Dtype::i32, {1});
  set.add("t2d", Dtype::boolean, {1}, std::string(1, '\1'));
  write_safetensors(tmp / "bad.safetensors", set.list());
  EXPECT_THROW(read_vocab_map(tmp / "bad.safetensors"), base::DataError);
  EXPECT_THROW(read_vocab_map(tmp / "none.safetensors"), base::MissingInputError);
}

TEST(VocabMap, HashCoversBothTablesOnly) {
  auto map = select_vocab(std::vector<std::int64_t>{4, 1, 0, 7, 7}, 3);
  const auto hash = vocab_hash(map);
  EXPECT_EQ(hash, base::xxh3_128_tagged("[3,5]\n" + std::string(8, '\0') + std::string("\2\0\0\0\0\0\0\0", 8) +
                                        std::string("\2\0\0\0\0\0\0\0", 8) + std::string("\1\0\0\1\1", 5)));
  map.counts[0] += 1;
  EXPECT_EQ(vocab_hash(map), hash);
  map.d2t[0] = 1;
  EXPECT_NE(vocab_hash(map), hash);
}

}  // namespace
}  // namespace aerie::interchange
