// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include <ATen/ATen.h>

#include <aerie/base/philox.hpp>
#include <aerie/eval/evaluate.hpp>

namespace aerie::eval {
namespace {

// Text 10..19; one turn over tokens 3..8. Slot t drafts x[t+2], x[t+3], ...
const std::vector<std::int32_t> text{10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
const std::vector<std::uint8_t> turn{0, 0, 0, 1, 1, 1, 1, 1, 1, 0};

TEST(WalkChain, ADrafterThatIsAlwaysRightEmitsKPlusOneAToken) {
  const auto right = [](std::int64_t k, std::int64_t t) { return std::int64_t{12} + t + k; };
  // Round 1 at t=2: x3 is given; 3 accepted (x4 x5 x6), emitted 4, t=6: x7 given; x8 accepted, then the turn ends: emitted 2.
  // t=8.
  const auto c = walk_chain(text, turn, 3, right);
  EXPECT_EQ(c.rounds, 2);
  EXPECT_EQ(c.emitted, 6);
}
TEST(WalkChain, ADrafterThatIsNeverRightHasTauOne) {
  const auto c = walk_chain(text, turn, 3, [](std::int64_t, std::int64_t) { return std::int64_t{-5}; });
  EXPECT_EQ(c.rounds, 5);  // t = 2..6
  EXPECT_EQ(c.emitted, 5);
  EXPECT_DOUBLE_EQ(c.tau(), 1.0);
}
TEST(WalkChain, AcceptanceStopsAtTheFirstMismatch) {
  // Wrong at step 1 always: one accepted token a round.
  const auto c = walk_chain(text, turn, 3, [](std::int64_t k, std::int64_t t) { return k == 1 ? std::int64_t{0} : 12 + t + k; });
  EXPECT_EQ(c.rounds, 3);  // t = 2, 4, 6
  EXPECT_EQ(c.emitted, 6);
}
TEST(WalkChain, TurnsAreWalkedApart) {
  const std::vector<std::uint8_t> two{1, 1, 1, 0, 0, 1, 1, 1, 1, 1};
  std::vector<ChainCounts> turns;
  const auto right = [](std::int64_t k, std::int64_t t) { return std::int64_t{12} + t + k; };
  const auto c = walk_chain(text, two, 7, right, &turns);
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[0].rounds, 1);  // t = 0: x2
  EXPECT_EQ(turns[0].emitted, 2);
  EXPECT_EQ(turns[1].rounds, 1);  // t = 4: x6..x9
  EXPECT_EQ(turns[1].emitted, 5);
  EXPECT_EQ(c.rounds, 2);
}

TEST(Evaluation, CountsAgainstTheDefinition) {
  constexpr std::int64_t K = 4, S = 30;
  std::vector<std::int32_t> ids(S);
  std::vector<std::uint8_t> mask(S);
  draft::DraftChoices choices{at::full({K, S}, -1, at::kLong), at::full({K, S}, -1, at::kLong), at::zeros({K, S}, at::kDouble)};
  for (std::int64_t t = 0; t < S; ++t) {
    ids[static_cast<std::size_t>(t)] =
        static_cast<std::int32_t>(base::random_u64(1, base::Purpose::test, 0, static_cast<std::uint64_t>(t)) % 3);
    mask[static_cast<std::size_t>(t)] = static_cast<std::uint8_t>((t / 6) % 2);
    for (std::int64_t k = 0; k < K; ++k) {
      const auto at = static_cast<std::uint64_t>(t * K + k);
      choices.draft_ids[k][t] = static_cast<std::int64_t>(base::random_u64(1, base::Purpose::test, 1, at) % 3);
      choices.teacher_ids[k][t] = static_cast<std::int64_t>(base::random_u64(1, base::Purpose::test, 2, at) % 2);
      choices.overlap[k][t] = 0.25;
    }
  }
  Evaluation e(K, {3});
  e.add(ids, mask, choices, 0);
  e.reduce(comm::Comm::solo());
  const auto json = e.to_json();
  for (std::int64_t k = 0; k < K; ++k) {
    std::int64_t slots = 0, unbroken = 0, matches = 0, cumulative = 0;
    for (std::int64_t t = 0; t + 2 + k < S; ++t) {
      if (!mask[static_cast<std::size_t>(t + 2 + k)]) continue;
      ++slots;
      bool all = true, loss = true;
      for (std::int64_t j = 0; j <= k; ++j) {
        const bool has = mask[static_cast<std::size_t>(t + 2 + j)] != 0;
        loss = loss && has;
        all = all && has && choices.draft_ids[j][t].item<std::int64_t>() == choices.teacher_ids[j][t].item<std::int64_t>();
      }
      matches += choices.draft_ids[k][t].item<std::int64_t>() == choices.teacher_ids[k][t].item<std::int64_t>() ? 1 : 0;
      cumulative += all ? 1 : 0;
      unbroken += loss ? 1 : 0;
    }
    const auto i = static_cast<std::size_t>(k);
    ASSERT_GT(slots, 0);
    EXPECT_EQ(json["slots"][i].get<std::int64_t>(), slots);
    EXPECT_DOUBLE_EQ(json["match"][i].get<double>(), static_cast<double>(matches) / static_cast<double>(slots));
    EXPECT_DOUBLE_EQ(json["cumulative"][i].get<double>(), static_cast<double>(cumulative) / static_cast<double>(unbroken));
    EXPECT_DOUBLE_EQ(json["alpha"][i].get<double>(), 0.25);
  }
}

}  // namespace
}  // namespace aerie::eval
