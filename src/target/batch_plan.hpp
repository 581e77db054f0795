// SPDX-License-Identifier: Apache-2.0
// Where each sample's rows stand in the residual stream of a batch. Samples follow one another without gaps inside a group;
// a group holds whole samples, begins and ends at a block boundary, and bounds the workspace of a layer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace aerie::target {

struct SampleRows {
  std::int64_t first = 0, tokens = 0;
};
struct RowGroup {
  std::int64_t first = 0, rows = 0;  // rows is a multiple of gemm_rows
  std::size_t samples_begin = 0, samples_end = 0;
};
struct BatchPlan {
  std::vector<SampleRows> samples;
  std::vector<RowGroup> groups;
  std::int64_t rows = 0;           // of the whole batch, padding included
  std::int64_t longest = 0;        // tokens of the longest sample
  std::int64_t largest_group = 0;  // rows
};

/// Closes a group when the next sample would take it past `group_tokens`.
BatchPlan plan_batch(std::span<const std::int64_t> lengths, std::int64_t gemm_rows, std::int64_t group_tokens);

}  // namespace aerie::target
