// SPDX-License-Identifier: Apache-2.0
// bfloat16 as raw bits: conversion from and to fp32, round to nearest even, NaN kept NaN.
#pragma once
#include <bit>
#include <cstdint>

namespace aerie::base {

constexpr float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
constexpr std::uint16_t float_to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16) | 0x40U);  // quiet NaN
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}
/// Infinity or NaN.
constexpr bool bf16_is_nonfinite(std::uint16_t bits) { return (bits & 0x7f80U) == 0x7f80U; }

}  // namespace aerie::base
