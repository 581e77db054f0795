// SPDX-License-Identifier: Apache-2.0
// Tells a loss spike from noise, by a robust rule over the newest losses. Integers in, one comparison of doubles, no history but
// the window: the answer is the same on any rank count, and after a resume from the state in a checkpoint.
#pragma once
#include <cstdint>
#include <deque>

#include <aerie/base/json.hpp>

namespace aerie::train {

/// A loss is a spike when it exceeds the median of the newest 32 accepted losses by more than `factor` times their robust
/// deviation, max(1.4826 x median absolute deviation, 5 % of the median). Nothing is a spike before 16 losses are known, nor with
/// factor 0.
class LossWatch {
 public:
  static constexpr std::size_t window = 32, least = 16;
  explicit LossWatch(double factor) : factor_(factor) {}
  /// `loss` in fixed point (train/fixed_point.hpp), as summed over ranks.
  bool is_spike(std::int64_t loss) const;
  /// Median of the window; 0 when it is empty.
  std::int64_t median() const;
  /// Accepts a loss into the window.
  void add(std::int64_t loss);

  base::Json state() const;
  /// Anything but a list of integers starts an empty window.
  void restore(const base::Json& state);

 private:
  double factor_;
  std::deque<std::int64_t> losses_;
};

}  // namespace aerie::train
