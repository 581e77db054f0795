// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/adamw.hpp>

#include <cmath>

#include <aerie/base/error.hpp>

namespace aerie::train {

AdamWFactors adamw_factors(const AdamWOptions& o) {
  const double t = static_cast<double>(o.step);
  AdamWFactors f{};
  f.b1 = static_cast<float>(o.beta1), f.b2 = static_cast<float>(o.beta2);
  f.c1 = static_cast<float>(1.0 - o.beta1), f.c2 = static_cast<float>(1.0 - o.beta2);
  f.step_size = static_cast<float>(-o.lr / (1.0 - std::pow(o.beta1, t)));
  f.inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(o.beta2, t)));
  f.eps = static_cast<float>(o.eps), f.scale = static_cast<float>(o.grad_scale);
  f.decay = static_cast<float>(1.0 - o.lr * o.weight_decay);
  return f;
}

// Clones differ in instructions, not in results: every operation below is one IEEE operation (fma, *, /, sqrt), and contraction
// is off.
__attribute__((target_clones("avx512f", "fma", "default"))) void adamw_step(const AdamWOptions& o, std::span<const float> grad,
                                                                            std::span<float> masters, std::span<float> exp_avg,
                                                                            std::span<float> exp_avg_sq) {
  base::expect(grad.size() == masters.size() && grad.size() == exp_avg.size() && grad.size() == exp_avg_sq.size(),
               "AdamW spans have one length");
  const auto f = adamw_factors(o);
  const float b1 = f.b1, b2 = f.b2, c1 = f.c1, c2 = f.c2, step_size = f.step_size, inverse_root = f.inverse_root, eps = f.eps,
              scale = f.scale, decay = f.decay;
  const std::size_t n = grad.size();
  const float* g = grad.data();
  float *p = masters.data(), *m = exp_avg.data(), *v = exp_avg_sq.data();
  for (std::size_t i = 0; i < n; ++i) {
    const float gi = g[i] * scale;
    m[i] = __builtin_fmaf(b1, m[i], c1 * gi);
    v[i] = __builtin_fmaf(b2, v[i], c2 * gi * gi);
    const float denominator = __builtin_fmaf(__builtin_sqrtf(v[i]), inverse_root, eps);
    p[i] = __builtin_fmaf(step_size, m[i] / denominator, p[i] * decay);
  }
}

double sum_of_squares(std::span<const float> block) {
  // Eight interleaved sums, combined in a fixed order: a shape that depends on the block alone.
  double s[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= block.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j) {
      const double x = block[i + j];
      s[j] += x * x;
    }
  for (; i < block.size(); ++i) s[i % 8] += static_cast<double>(block[i]) * static_cast<double>(block[i]);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

}  // namespace aerie::train
