// SPDX-License-Identifier: Apache-2.0
#include <aerie/dataset/token_counts.hpp>

#include <cmath>
#include <fstream>

#include <aerie/base/error.hpp>

#include <gtest/gtest.h>

#include "temp_dir.hpp"

namespace {
using namespace aerie::dataset;

Dataset sample_data(const aerie::test::TempDir& dir) {
  std::ofstream(dir / "in.jsonl") << R"({"id":"a","input_ids":[1,2,2,3],"loss_mask":[0,1,1,1]})"
                                     "\n"
                                  << R"({"id":"b","input_ids":[2,9],"loss_mask":[1,0]})"
                                     "\n"
                                  << R"({"id":"c","input_ids":[3,3],"loss_mask":[1,1]})"
                                     "\n";
  import_jsonl(dir / "in.jsonl", dir / "d.h5", {});
  return Dataset::open(dir / "d.h5");
}

TEST(TokenCounts, CountsLossTokensOfTheGivenSamples) {
  const aerie::test::TempDir dir;
  const auto d = sample_data(dir);
  int polls = 0;
  EXPECT_EQ(count_loss_tokens(d, std::vector<std::int64_t>{0, 1}, 10, [&] { ++polls; }),
            (std::vector<std::int64_t>{0, 0, 3, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(polls, 2);
  EXPECT_EQ(count_loss_tokens(d, std::vector<std::int64_t>{2}, 4), (std::vector<std::int64_t>{0, 0, 0, 2}));
}

TEST(TokenCounts, AnIdOutsideNamesTheSample) {
  const aerie::test::TempDir dir;
  const auto d = sample_data(dir);
  try {
    count_loss_tokens(d, std::vector<std::int64_t>{0, 1}, 9);
    FAIL();
  } catch (const aerie::base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find("sample 1 ('b')"), std::string::npos) << e.what();
  }
}

TEST(TokenCounts, PollCanStop) {
  const aerie::test::TempDir dir;
  const auto d = sample_data(dir);
  EXPECT_THROW(count_loss_tokens(d, std::vector<std::int64_t>{0}, 10, [] { throw aerie::base::StopRequested("stop"); }),
               aerie::base::StopRequested);
}

TEST(HoldOut, ShareAndNesting) {
  // Binomial: 20000 ids, share 0.01: 200 expected, standard deviation 14; 5 of them are 70.
  int held = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto id = "sample-" + std::to_string(i);
    EXPECT_FALSE(is_held_out(id, 0));
    EXPECT_TRUE(is_held_out(id, 1));
    EXPECT_TRUE(!is_held_out(id, 0.01) || is_held_out(id, 0.02));  // a larger share keeps those of a smaller one
    held += is_held_out(id, 0.01);
  }
  EXPECT_NEAR(held, 200, 70);
}

TEST(HoldOut, FollowsTheHash) {
  // XXH3-64 of the empty input is 0x2d06800538d394c2 (published), a share of 0.17588... of 2^64.
  const double share = std::ldexp(static_cast<double>(0x2d06800538d394c2ULL >> 11), -53);
  EXPECT_FALSE(is_held_out("", share));
  EXPECT_TRUE(is_held_out("", std::nextafter(share, 1.0)));
}
}  // namespace
