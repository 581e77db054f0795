// SPDX-License-Identifier: Apache-2.0
// One decoder layer over one group of samples: u = x + Attn(N(x)), x' = u + FFN(N(u)), in place on the residual rows.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "batch_plan.hpp"
#include "layer_source.hpp"
#include "row_ops.hpp"

namespace aerie::target {

/// Buffers that all layers and groups of a forward pass share.
struct Workspace {
  Workspace(std::int64_t group_rows, std::int64_t gemm_rows, std::int64_t hidden, std::int64_t inner, const HeadLayout& layout,
            const at::TensorOptions& options);
  at::Tensor qkv;                // [group rows, columns]
  at::Tensor attention;          // [group rows, heads * dim]
  at::Tensor normed, projected;  // [gemm rows, hidden]
  at::Tensor gate_up;            // [gemm rows, 2 inner]
  at::Tensor act;                // [gemm rows, inner]
};

struct LayerShape {
  HeadLayout heads;
  std::int64_t gemm_rows = 0;
  bool hf = false;
};

/// x [all rows of the batch, hidden]; only the group's rows change.
void layer_forward(const LayerWeights& weights, const LayerShape& shape, const RopeAngles& angles, const BatchPlan& plan,
                   const RowGroup& group, Workspace& work, at::Tensor& x);

}  // namespace aerie::target
