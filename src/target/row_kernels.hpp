// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels over fp32 rows for the CPU. Each result depends on its own row alone: no operation here knows how many
// rows there are, where a row stands in a batch, or how many threads share the work. (LibTorch's vectorised loops compute the
// tail of a range by other instructions than its body, so an element's value may depend on its place; these do not.)
#pragma once
#include <cstddef>
#include <cstdint>

namespace aerie::target::kernels {

void bf16_to_float(const std::uint16_t* in, float* out, std::size_t n);
/// Round to nearest even, NaN kept.
void float_to_bf16(const float* in, std::uint16_t* out, std::size_t n);

/// 1 / sqrt(mean(x^2) + eps): sixteen running sums, combined in a fixed order.
float inverse_rms(const float* x, std::size_t n, float eps);
/// out = x * factor
void scale(const float* x, float factor, float* out, std::size_t n);
/// out *= w
void multiply(float* out, const float* w, std::size_t n);
/// out += x
void add(float* out, const float* x, std::size_t n);
/// out = x / (1 + exp(-x))
void silu(const float* x, float* out, std::size_t n);
/// Half-split rotation in place: (a_i, b_i) -> (a_i cos_i - b_i sin_i, b_i cos_i + a_i sin_i).
void rotate(float* a, float* b, const float* cos, const float* sin, std::size_t half);

}  // namespace aerie::target::kernels
