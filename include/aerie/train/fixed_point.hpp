// SPDX-License-Identifier: Apache-2.0
// Gradients as int64 fixed point (value x 2^48): integer addition is associative, so neither the order of additions nor the rank
// count changes a bit (docs/adr/0002-fixed-point-gradients.md).
#pragma once
#include <cstdint>
#include <span>

namespace aerie::train {

constexpr double fixed_point_scale = 281474976710656.0;  // 2^48
/// A pack's |value| must stay below this over packs_per_step, so that the sum cannot wrap.
constexpr double fixed_point_range = 32768.0;

/// sum[i] += round_to_nearest_even(values[i] * 2^48). Returns the index of the first value that is not finite or whose magnitude
/// reaches fixed_point_range / packs_per_step (nothing past it is added), or -1.
std::int64_t add_fixed_point(std::span<const float> values, std::span<std::int64_t> sum, std::int64_t packs_per_step);

/// out[i] = sum[i] / 2^48, rounded once to fp32.
void from_fixed_point(std::span<const std::int64_t> sum, std::span<float> out);

std::int64_t to_fixed_point(double value);
double from_fixed_point(std::int64_t value);

}  // namespace aerie::train
