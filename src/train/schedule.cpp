// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <aerie/base/error.hpp>

namespace aerie::train {

Schedule make_schedule(double lr, double min_lr, double warmup_share, std::int64_t total_steps) {
  const auto warmup = static_cast<std::int64_t>(std::llround(warmup_share * static_cast<double>(total_steps)));
  return {total_steps, std::max<std::int64_t>(1, warmup), lr, min_lr};
}

double Schedule::at(std::int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto span = std::max<std::int64_t>(1, total_steps - warmup_steps);
  const double x = std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(span));
  return min_lr + 0.5 * (lr - min_lr) * (1.0 + std::cos(std::numbers::pi * x));
}

std::vector<double> loss_coefficients(std::span<const double> step_weights, std::span<const std::int64_t> n) {
  base::expect(step_weights.empty() || step_weights.size() == n.size(), "one step weight per unroll step");
  std::vector<double> out(n.size(), 0.0);
  double w = 1.0;
  for (std::size_t k = 0; k < n.size(); ++k) {
    const double weight = step_weights.empty() ? w : step_weights[k];
    if (n[k] > 0) out[k] = weight / static_cast<double>(n[k]);
    w *= 0.8;
  }
  return out;
}

}  // namespace aerie::train
