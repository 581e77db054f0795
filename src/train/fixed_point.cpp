// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/fixed_point.hpp>

#include <cmath>

#include <aerie/base/error.hpp>

namespace aerie::train {

std::int64_t to_fixed_point(double value) { return std::llrint(value * fixed_point_scale); }  // default mode: nearest even
double from_fixed_point(std::int64_t value) { return static_cast<double>(value) / fixed_point_scale; }

__attribute__((target_clones("avx512f", "avx2", "default"))) std::int64_t add_fixed_point(std::span<const float> values,
                                                                                          std::span<std::int64_t> sum,
                                                                                          std::int64_t packs_per_step) {
  base::expect(values.size() == sum.size(), "one accumulator per value");
  const float limit = static_cast<float>(fixed_point_range / static_cast<double>(packs_per_step));
  constexpr std::size_t step = 4096;  // check a stretch, then add it: both loops vectorise
  for (std::size_t a = 0; a < values.size(); a += step) {
    const std::size_t n = std::min(step, values.size() - a);
    const float* v = values.data() + a;
    bool ok = true;
    for (std::size_t i = 0; i < n; ++i) ok &= std::fabs(v[i]) < limit;  // false for NaN too
    if (!ok)
      for (std::size_t i = 0; i < n; ++i)
        if (!(std::fabs(v[i]) < limit)) return static_cast<std::int64_t>(a + i);
    std::int64_t* s = sum.data() + a;
    for (std::size_t i = 0; i < n; ++i)
      s[i] += static_cast<std::int64_t>(std::nearbyint(static_cast<double>(v[i]) * fixed_point_scale));
  }
  return -1;
}

__attribute__((target_clones("avx512f", "avx2", "default"))) void from_fixed_point(std::span<const std::int64_t> sum,
                                                                                   std::span<float> out) {
  base::expect(out.size() == sum.size(), "one value per accumulator");
  for (std::size_t i = 0; i < sum.size(); ++i) out[i] = static_cast<float>(static_cast<double>(sum[i]) / fixed_point_scale);
}

}  // namespace aerie::train
