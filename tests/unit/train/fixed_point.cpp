// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <aerie/base/philox.hpp>
#include <aerie/train/fixed_point.hpp>

namespace aerie::train {
namespace {

TEST(FixedPoint, RoundsToTheNearestMultipleOf2ToMinus48) {
  // Values whose fixed-point form is known by hand: value x 2^48.
  const std::vector<float> values{
      0.0F, 1.0F, -1.0F, 0.5F, std::ldexp(1.0F, -48), std::ldexp(1.0F, -49), std::ldexp(3.0F, -49), -std::ldexp(1.0F, -50)};
  const std::vector<std::int64_t> expected{0, std::int64_t{1} << 48, -(std::int64_t{1} << 48), std::int64_t{1} << 47, 1, 0, 2,
                                           0};  // ties to even
  std::vector<std::int64_t> sum(values.size(), 0);
  EXPECT_EQ(add_fixed_point(values, sum, 1), -1);
  EXPECT_EQ(sum, expected);
}

TEST(FixedPoint, SumDoesNotDependOnTheOrder) {
  constexpr std::size_t n = 5000, packs = 7;
  std::vector<std::vector<float>> pack(packs, std::vector<float>(n));
  for (std::size_t p = 0; p < packs; ++p)
    for (std::size_t i = 0; i < n; ++i) pack[p][i] = static_cast<float>(base::random_normal(3, base::Purpose::test, p, i));
  std::vector<std::int64_t> forward(n, 0), backward(n, 0);
  std::vector<float> float_forward(n, 0), float_backward(n, 0);
  for (std::size_t p = 0; p < packs; ++p) {
    EXPECT_EQ(add_fixed_point(pack[p], forward, packs), -1);
    EXPECT_EQ(add_fixed_point(pack[packs - 1 - p], backward, packs), -1);
    for (std::size_t i = 0; i < n; ++i) {
      float_forward[i] += pack[p][i];
      float_backward[i] += pack[packs - 1 - p][i];
    }
  }
  EXPECT_EQ(forward, backward);
  EXPECT_NE(float_forward, float_backward);  // the control: fp32 sums of the same values do depend on it
  std::vector<float> back(n);
  from_fixed_point(forward, back);
  for (std::size_t i = 0; i < n; ++i) {
    double exact = 0;
    for (const auto& p : pack) exact += static_cast<double>(p[i]);
    ASSERT_EQ(back[i], static_cast<float>(exact)) << i;  // every fp32 above 2^-24 is a multiple of 2^-48
  }
}

TEST(FixedPoint, NamesTheFirstValueOutOfRange) {
  for (const float bad :
       {32768.0F / 4, -8192.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(10000, 0.25F);
    values[9001] = bad;
    values[9500] = bad;
    std::vector<std::int64_t> sum(values.size(), 0);
    EXPECT_EQ(add_fixed_point(values, sum, 4), 9001) << bad;
  }
  std::vector<float> edge(3, std::nextafter(8192.0F, 0.0F));
  std::vector<std::int64_t> sum(3, 0);
  EXPECT_EQ(add_fixed_point(edge, sum, 4), -1);
}

}  // namespace
}  // namespace aerie::train
