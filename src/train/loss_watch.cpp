// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/loss_watch.hpp>

#include <algorithm>
#include <vector>

namespace aerie::train {
namespace {
/// The lower median.
std::int64_t middle(std::vector<std::int64_t> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}
}  // namespace

std::int64_t LossWatch::median() const {
  return losses_.empty() ? 0 : middle(std::vector<std::int64_t>(losses_.begin(), losses_.end()));
}

bool LossWatch::is_spike(std::int64_t loss) const {
  if (factor_ <= 0 || losses_.size() < least) return false;
  const auto m = median();
  std::vector<std::int64_t> deviations;
  for (const auto l : losses_) deviations.push_back(l > m ? l - m : m - l);
  const double deviation =
      std::max(1.4826 * static_cast<double>(middle(std::move(deviations))), 0.05 * static_cast<double>(m > 0 ? m : -m));
  return static_cast<double>(loss) - static_cast<double>(m) > factor_ * deviation;
}

void LossWatch::add(std::int64_t loss) {
  losses_.push_back(loss);
  if (losses_.size() > window) losses_.pop_front();
}

base::Json LossWatch::state() const { return std::vector<std::int64_t>(losses_.begin(), losses_.end()); }

void LossWatch::restore(const base::Json& state) {
  losses_.clear();
  if (!state.is_array()) return;
  for (const auto& v : state)
    if (v.is_number_integer()) add(v.get<std::int64_t>());
}

}  // namespace aerie::train
