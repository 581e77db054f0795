// SPDX-License-Identifier: Apache-2.0
// The loops behind row_kernels.hpp, compiled once per instruction set and chosen when the program starts. Only +, -, *, /,
// sqrt and integer operations are used and none is contracted, so every instruction set gives the same bits.
#include "row_kernels.hpp"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define AERIE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define AERIE_CLONES
#endif

namespace aerie::target::kernels {
namespace {

// exp(x) for x in [-87, 88], about 1 ulp: x = k ln 2 + r, |r| <= ln 2 / 2, a Taylor polynomial of degree 7 in r (its remainder
// is below 2^-27), then k into the exponent. ln 2 is split so that k * hi is exact.
__attribute__((always_inline)) inline float exp_bounded(float x) {
  const float low = -87.0F, high = 88.0F;
  x = x < low ? low : x;
  x = x > high ? high : x;
  const float shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504F + shift;
  const float k = shifted - shift;
  float r = x - k * 0.693359375F;
  r = r - k * -2.12194440e-4F;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  const float e = r + (r * r) * p;
  const std::int32_t bits = (std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(shift) + 127) << 23;
  return (1.0F + e) * std::bit_cast<float>(bits);
}

}  // namespace

AERIE_CLONES void bf16_to_float(const std::uint16_t* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(in[i]) << 16);
}

AERIE_CLONES void float_to_bf16(const float* in, std::uint16_t* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (u >> 16) | 0x40U;
    out[i] = static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
}

AERIE_CLONES float inverse_rms(const float* x, std::size_t n, float eps) {
  float sums[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t j = 0; j < 16; ++j) sums[j] += x[i + j] * x[i + j];
  }
  for (std::size_t j = 0; i + j < n; ++j) sums[j] += x[i + j] * x[i + j];
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return 1.0F / std::sqrt(sums[0] / static_cast<float>(n) + eps);
}

AERIE_CLONES void scale(const float* x, float factor, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

AERIE_CLONES void multiply(float* out, const float* w, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] *= w[i];
}

AERIE_CLONES void add(float* out, const float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] += x[i];
}

AERIE_CLONES void silu(const float* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] / (1.0F + exp_bounded(-x[i]));
}

AERIE_CLONES void rotate(float* a, float* b, const float* cos, const float* sin, std::size_t half) {
  for (std::size_t i = 0; i < half; ++i) {
    const float x = a[i], y = b[i];
    a[i] = x * cos[i] - y * sin[i];
    b[i] = y * cos[i] + x * sin[i];
  }
}

}  // namespace aerie::target::kernels
