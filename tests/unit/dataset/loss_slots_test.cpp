// SPDX-License-Identifier: Apache-2.0
// Counts against the definition, written out with bounds-checked loops over slots, for random and extreme masks.
#include <aerie/dataset/loss_slots.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

#include <gtest/gtest.h>

namespace {
using namespace aerie::dataset;
using Mask = std::vector<std::uint8_t>;

/// docs/concepts/eagle3.md, section 3: slot (t,k) exists only if t+1+k <= S-1, and t+2+k <= S-1 for `predicted`.
std::vector<std::int64_t> by_definition(const Mask& m, std::int64_t K, MaskAlignment a) {
  const auto S = static_cast<std::int64_t>(m.size());
  std::vector<std::int64_t> n;
  for (std::int64_t k = 0; k < K; ++k) {
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < S; ++t) {
      if (t + 1 + k > S - 1) continue;
      if (a == MaskAlignment::predicted) {
        if (t + 2 + k <= S - 1) count += m.at(static_cast<std::size_t>(t + 2 + k));
      } else if (a == MaskAlignment::input) {
        count += m.at(static_cast<std::size_t>(t + 1 + k));
      } else {
        count += m.at(static_cast<std::size_t>(t + k));
      }
    }
    n.push_back(count);
  }
  return n;
}
constexpr MaskAlignment alignments[] = {MaskAlignment::predicted, MaskAlignment::input, MaskAlignment::hidden};

TEST(LossSlots, AgreesWithTheDefinition) {
  std::vector<Mask> masks;
  for (std::size_t S = 0; S <= 12; ++S) {
    masks.emplace_back(S, std::uint8_t{0});
    masks.emplace_back(S, std::uint8_t{1});
    for (std::size_t i = 0; i < 40; ++i) {
      Mask m(S);
      for (std::size_t t = 0; t < S; ++t) m[t] = aerie::base::random_u64(7, aerie::base::Purpose::test, S * 100 + i, t) & 1;
      masks.push_back(m);
    }
  }
  std::int64_t seen = 0;
  for (const auto& m : masks)
    for (const auto a : alignments)
      for (const std::int64_t K : {0, 1, 3, 7, 20}) {
        const auto expected = by_definition(m, K, a);
        EXPECT_EQ(loss_slot_counts(m, K, a, Normalize::loss), expected);
        for (std::int64_t k = 0; k < K; ++k) {
          std::int64_t slots = 0;
          for (std::int64_t t = 0; t < static_cast<std::int64_t>(m.size()); ++t) slots += slot_has_loss(m, t, k, a);
          EXPECT_EQ(slots, expected[static_cast<std::size_t>(k)]);
          seen += slots;
        }
      }
  EXPECT_GT(seen, 10000);
}

TEST(LossSlots, KnownExample) {
  const Mask m{0, 0, 1, 1, 0, 1};  // worked out by hand
  EXPECT_EQ(loss_slot_counts(m, 4, MaskAlignment::predicted, Normalize::loss), (std::vector<std::int64_t>{3, 2, 1, 1}));
  EXPECT_EQ(loss_slot_counts(m, 3, MaskAlignment::input, Normalize::loss), (std::vector<std::int64_t>{3, 3, 2}));
  EXPECT_EQ(loss_slot_counts(m, 3, MaskAlignment::hidden, Normalize::loss), (std::vector<std::int64_t>{2, 2, 2}));
}

TEST(LossSlots, AllCountsEveryPosition) {
  const Mask m{0, 0, 1, 0, 0};
  for (const auto a : alignments) EXPECT_EQ(loss_slot_counts(m, 7, a, Normalize::all), (std::vector<std::int64_t>(7, 5)));
}

TEST(LossSlots, Names) {
  for (const auto a : alignments) EXPECT_EQ(mask_alignment_from_name(mask_alignment_name(a)), a);
  EXPECT_EQ(normalize_from_name("loss"), Normalize::loss);
  EXPECT_EQ(normalize_from_name("all"), Normalize::all);
  EXPECT_THROW(mask_alignment_from_name("predict"), aerie::base::ConfigError);
  EXPECT_THROW(normalize_from_name(""), aerie::base::ConfigError);
}
}  // namespace
