// SPDX-License-Identifier: Apache-2.0
// float8 e4m3fn as raw bits (OCP 8-bit floating point specification, 2023): 1 sign, 4 exponent bits with bias 7, 3 mantissa bits;
// no infinity, one NaN code per sign (0x7f, 0xff), largest value 448. Conversion rounds to nearest even and saturates.
#pragma once
#include <bit>
#include <cstdint>

namespace aerie::base {

constexpr float e4m3_max = 448.0F;

/// Exact. NaN codes give NaN.
constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24, magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-9F;  // subnormal
  return sign ? -value : value;
}

/// Values beyond +-448, infinities included, become +-448; NaN becomes the NaN code of its sign. Without branches, so that loops
/// over it are vectorized.
constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U, magnitude = bits & 0x7fffffffU;
  // Normal codes: round the mantissa to 3 bits in place, then move the exponent's bias from 127 to 7.
  const std::uint32_t normal = ((magnitude + 0x7ffffU + ((magnitude >> 20) & 1U)) >> 20) - (120U << 3);
  // Below 2^-6 codes are multiples of 2^-9: the unit in the last place of 2^14, so that the addition rounds.
  const auto small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude < 0x3c800000U ? magnitude : 0U) + 0x1p14F) -
                     std::bit_cast<std::uint32_t>(0x1p14F);
  std::uint32_t code = magnitude < 0x3c800000U ? small : normal;
  code = magnitude > 0x43e00000U ? 0x7eU : code;
  code = magnitude > 0x7f800000U ? 0x7fU : code;
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace aerie::base
