// SPDX-License-Identifier: Apache-2.0
// Inverse frequencies, operation by operation as transformers 5.24 computes them with fp32 tensors: Python numbers are double
// until they meet a tensor, "scalar / tensor" is reciprocal times scalar, and no product is fused with a sum.
#include <aerie/interchange/target_config.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <aerie/base/error.hpp>

#include <fmt/format.h>

namespace aerie::interchange {
namespace {

/// theta^(i/dim) for i = 0, 2, ..., dim-2.
std::vector<float> powers(double theta, std::int64_t dim) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(dim / 2));
  for (std::int64_t i = 0; i < dim; i += 2)
    out.push_back(std::pow(static_cast<float>(theta), static_cast<float>(i) / static_cast<float>(dim)));
  return out;
}

std::vector<float> plain(double theta, std::int64_t dim) {
  auto out = powers(theta, dim);
  for (auto& f : out) f = 1.0F / f;
  return out;
}

std::vector<float> llama3(const RopeConfig& rope, std::int64_t dim, double original) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  auto out = plain(rope.theta, dim);
  for (auto& f : out) {
    const float wavelength = (1.0F / f) * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > low_wavelength) {
      f = f / factor;
    } else if (!(wavelength < high_wavelength)) {
      const float smooth = ((1.0F / wavelength) * static_cast<float>(original) - low) / span;
      f = (1.0F - smooth) * f / factor + smooth * f;
    }
  }
  return out;
}

double yarn_mscale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

RopeTable yarn(const RopeConfig& rope, std::int64_t dim, double factor, double original) {
  double scale = yarn_mscale(factor, 1.0);
  if (rope.attention_factor) {
    scale = *rope.attention_factor;
  } else if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0) {
    scale = yarn_mscale(factor, *rope.mscale) / yarn_mscale(factor, *rope.mscale_all_dim);
  }

  const auto size = static_cast<double>(dim);
  const auto correction = [&](double rotations) {  // the dimension that turns `rotations` times within the original length
    return (size * std::log(original / (rotations * 2.0 * std::numbers::pi))) / (2.0 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast != 0.0 ? rope.beta_fast : 32.0);
  double high = correction(rope.beta_slow != 0.0 ? rope.beta_slow : 1.0);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1.0);
  if (low == high) high += 0.001;

  RopeTable table;
  table.scale = static_cast<float>(scale);
  const auto f_low = static_cast<float>(low), f_span = static_cast<float>(high - low), f_factor = static_cast<float>(factor);
  float index = 0.0F;
  for (const float power : powers(rope.theta, dim)) {
    const float ramp = std::clamp((index - f_low) / f_span, 0.0F, 1.0F);
    const float keep = 1.0F - ramp;
    table.inverse_frequency.push_back((1.0F / (f_factor * power)) * (1.0F - keep) + (1.0F / power) * keep);
    index += 1.0F;
  }
  return table;
}
}  // namespace

RopeTable rope_table(const RopeConfig& rope, std::int64_t dim, std::int64_t max_position_embeddings) {
  if (dim < 2 || dim % 2 != 0) throw base::DataError(fmt::format("RoPE needs an even dimension, not {}", dim));
  const auto limit = static_cast<double>(max_position_embeddings);
  const auto original =
      rope.original_max_position_embeddings > 0 ? static_cast<double>(rope.original_max_position_embeddings) : limit;
  RopeTable table;
  if (rope.type == "default") {
    table.inverse_frequency = plain(rope.theta, dim);
  } else if (rope.type == "linear") {
    table.inverse_frequency = plain(rope.theta, dim);
    for (auto& f : table.inverse_frequency) f /= static_cast<float>(rope.factor);
  } else if (rope.type == "llama3") {
    table.inverse_frequency = llama3(rope, dim, original);
  } else if (rope.type == "yarn") {
    table = yarn(rope, dim, rope.factor > 0.0 ? rope.factor : limit / original, original);
  } else {
    throw base::DataError(fmt::format("RoPE type '{}' is not supported", rope.type), "supported: default, linear, llama3, yarn");
  }
  return table;
}

}  // namespace aerie::interchange
