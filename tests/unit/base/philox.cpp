// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 against the known-answer vectors published with Random123, and the derived values' ranges.
#include <aerie/base/philox.hpp>

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace base = aerie::base;
using Block = std::array<std::uint32_t, 4>;

TEST(Philox, PublishedVectors) {
  EXPECT_EQ(base::philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(base::philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(base::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryArgumentMatters) {
  using base::Purpose;
  std::set<std::uint64_t> values;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32})
    for (const auto purpose : {Purpose::sample_order, Purpose::weight_init})
      for (const std::uint64_t stream : {0ULL, 1ULL, 1ULL << 32})
        for (const std::uint64_t index : {0ULL, 1ULL, 1ULL << 32}) values.insert(base::random_u64(seed, purpose, stream, index));
  EXPECT_EQ(values.size(), 54U);
  EXPECT_EQ(base::random_u64(7, Purpose::test, 1, 2), base::random_u64(7, Purpose::test, 1, 2));
}

TEST(Philox, UniformAndNormalMoments) {
  double sum = 0, square = 0, normal = 0, normal_square = 0;
  constexpr int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double u = base::random_uniform(1, base::Purpose::test, 0, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    square += u * u;
    const double z = base::random_normal(1, base::Purpose::test, 1, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(z));
    normal += z;
    normal_square += z * z;
  }
  // Five standard errors: sqrt(1/12/n), sqrt(4/45/n), sqrt(1/n), sqrt(2/n).
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(square / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  EXPECT_NEAR(normal / n, 0.0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(normal_square / n, 1.0, 5 * std::sqrt(2.0 / n));
}
