// SPDX-License-Identifier: Apache-2.0
// First come, first placed: the order of the samples is kept.
#include "batch_plan.hpp"

#include <algorithm>

#include "linear.hpp"

namespace aerie::target {

BatchPlan plan_batch(std::span<const std::int64_t> lengths, std::int64_t gemm_rows, std::int64_t group_tokens) {
  BatchPlan plan;
  std::int64_t tokens = 0;  // of the open group
  const auto close_group = [&](std::size_t end) {
    RowGroup& group = plan.groups.back();
    group.rows = whole_blocks(tokens, gemm_rows);
    group.samples_end = end;
    plan.rows = group.first + group.rows;
    plan.largest_group = std::max(plan.largest_group, group.rows);
    tokens = 0;
  };
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (!plan.groups.empty() && tokens + lengths[i] > group_tokens) close_group(i);
    if (tokens == 0) plan.groups.push_back({plan.rows, 0, i, i});
    plan.samples.push_back({plan.groups.back().first + tokens, lengths[i]});
    tokens += lengths[i];
    plan.longest = std::max(plan.longest, lengths[i]);
  }
  if (!plan.groups.empty()) close_group(lengths.size());
  return plan;
}

}  // namespace aerie::target
