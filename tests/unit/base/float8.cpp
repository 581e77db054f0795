// SPDX-License-Identifier: Apache-2.0
// float8 e4m3fn against its definition, written here with ldexp and a search for the nearest code.
#include <cmath>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include <aerie/base/bfloat16.hpp>
#include <aerie/base/float8.hpp>

namespace aerie::base {
namespace {

double by_definition(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double m = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -m : m;
}

/// Nearest of the 127 magnitudes, the even code at a tie; above 448 the largest.
int nearest(double x) {
  const double a = std::fabs(x);
  int best = 0;
  for (int c = 1; c <= 0x7e; ++c) {
    const double d = std::fabs(by_definition(c) - a), least = std::fabs(by_definition(best) - a);
    if (d < least || (d == least && c % 2 == 0)) best = c;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

TEST(Float8, All256CodesGoThereAndBack) {
  for (int c = 0; c < 256; ++c) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(c));
    if ((c & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << c;
      EXPECT_EQ(float_to_e4m3(value) & 0x7f, 0x7f) << c;
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), by_definition(c)) << c;
    EXPECT_EQ(std::signbit(value), c >= 0x80) << c;
    EXPECT_EQ(float_to_e4m3(value), c);
  }
  EXPECT_EQ(by_definition(0x7e), 448.0) << "the definition above";
}

TEST(Float8, EveryBfloat16RoundsToTheNearestCode) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(x)) continue;
    EXPECT_EQ(float_to_e4m3(x), nearest(x)) << x;
  }
}

TEST(Float8, TiesGoToTheEvenCodeAndNeighboursOfTiesDoNot) {
  for (int c = 0; c < 0x7e; ++c) {
    const auto middle = static_cast<float>((by_definition(c) + by_definition(c + 1)) / 2);
    EXPECT_EQ(float_to_e4m3(middle), c % 2 == 0 ? c : c + 1) << c;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0F)), c) << c;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9F)), c + 1) << c;
    EXPECT_EQ(float_to_e4m3(-middle), 0x80 | (c % 2 == 0 ? c : c + 1)) << c;
  }
}

TEST(Float8, Saturates) {
  using limits = std::numeric_limits<float>;
  for (const auto x : {448.5F, 464.0F, 465.0F, 1e30F, limits::max(), limits::infinity()}) {
    EXPECT_EQ(float_to_e4m3(x), 0x7e) << x;
    EXPECT_EQ(float_to_e4m3(-x), 0xfe) << x;
  }
  EXPECT_EQ(float_to_e4m3(limits::denorm_min()), 0);
}

}  // namespace
}  // namespace aerie::base
