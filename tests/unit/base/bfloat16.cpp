// SPDX-License-Identifier: Apache-2.0
// bf16: every code there and back, and rounding against a reference that works on the value, not on the bits.
#include <aerie/base/bfloat16.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace base = aerie::base;

namespace {
/// Nearest bf16 of a finite value by search over its neighbours, ties to the even code. In double, where all of this is exact.
std::uint16_t nearest_by_search(float value) {
  const auto truncated = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const auto next = static_cast<std::uint16_t>(truncated + 1);  // one step away from zero; may be the code of infinity
  const double low = std::fabs(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(truncated) << 16)));
  // Past the largest finite code the grid goes on as if the exponent did: 2^128.
  const double high = (next & 0x7fffU) == 0x7f80U
                          ? std::ldexp(1.0, 128)
                          : std::fabs(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(next) << 16)));
  const double v = std::fabs(static_cast<double>(value));
  if (v - low != high - v) return v - low < high - v ? truncated : next;
  return (truncated & 1U) == 0 ? truncated : next;
}
}  // namespace

TEST(Bfloat16, AllCodesRoundTrip) {
  int nonfinite = 0, nan = 0;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = base::bf16_to_float(bits);
    const bool is_nan = (bits & 0x7fffU) > 0x7f80U;
    EXPECT_EQ(std::isnan(value), is_nan) << code;
    EXPECT_EQ(base::bf16_is_nonfinite(bits), !std::isfinite(value)) << code;
    // A NaN stays a NaN of the same sign and payload and becomes quiet; all else comes back unchanged.
    EXPECT_EQ(base::float_to_bf16(value), is_nan ? bits | 0x40U : bits) << code;
    nonfinite += base::bf16_is_nonfinite(bits);
    nan += is_nan;
  }
  EXPECT_EQ(nonfinite, 2 * 128);
  EXPECT_EQ(nan, 2 * 127);
}

TEST(Bfloat16, RoundsToNearestEven) {
  for (std::uint32_t high = 0; high < 0x7f80; high += 7)
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const auto value = std::bit_cast<float>(sign | (high << 16) | low);
        ASSERT_EQ(base::float_to_bf16(value), nearest_by_search(value)) << std::hex << (sign | (high << 16) | low);
      }
}

TEST(Bfloat16, Edges) {
  EXPECT_EQ(base::float_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(base::float_to_bf16(1.00390625F), 0x3f80);                        // 1 + 2^-8: a tie, to even
  EXPECT_EQ(base::float_to_bf16(1.01171875F), 0x3f82);                        // 1 + 3 * 2^-8: a tie, to even, upwards
  EXPECT_EQ(base::float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // overflows to infinity
  EXPECT_EQ(base::float_to_bf16(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(base::float_to_bf16(-0.0F), 0x8000);
  EXPECT_EQ(base::float_to_bf16(std::numeric_limits<float>::denorm_min()), 0x0000);
  const auto low_payload = std::bit_cast<float>(0x7f800001U);  // a NaN whose upper half alone would be infinity
  EXPECT_TRUE(std::isnan(base::bf16_to_float(base::float_to_bf16(low_payload))));
}
