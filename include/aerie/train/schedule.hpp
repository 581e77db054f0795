// SPDX-License-Identifier: Apache-2.0
// Learning rate and loss coefficients as functions of the step and the data alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace aerie::train {

struct Schedule {
  std::int64_t total_steps = 1, warmup_steps = 1;
  double lr = 1e-4, min_lr = 0;
  /// Linear warm-up, then cosine to min_lr. `step` counts from 0.
  double at(std::int64_t step) const;
};
Schedule make_schedule(double lr, double min_lr, double warmup_share, std::int64_t total_steps);

/// w_k / n_k, 0 where n_k = 0. Empty `step_weights` means 0.8^k.
std::vector<double> loss_coefficients(std::span<const double> step_weights, std::span<const std::int64_t> n);

}  // namespace aerie::train
