// SPDX-License-Identifier: Apache-2.0
// Attention of one unroll step: queries of the active slots against the step-0 keys of their document (causal) and, for
// steps 1..k, the own slot's key of each step, in one joint softmax. Forward returns the merged output and its log-sum-exp; the
// backward of the causal part is the ordinary flash backward fed those merged values (proof: docs/concepts/eagle3.md). Works
// block by block of queries; no [n, F] buffer of a whole pack.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pack_plan.hpp"

namespace aerie::draft {

struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

struct AttentionResult {
  at::Tensor out;  // [n, heads, hd], compute dtype
  at::Tensor lse;  // [n, heads], op type
};

/// q [n, heads, hd]; k0, v0 [F, kv, hd]; own_k[i], own_v[i] [n, kv, hd]: keys and values of steps 1..k (empty at step 0).
AttentionResult step_attention(const AttentionShape& shape, const PackPlan& plan, const at::Tensor& q, const at::Tensor& k0,
                               const at::Tensor& v0, const std::vector<at::Tensor>& own_k, const std::vector<at::Tensor>& own_v);

/// Returns dq [n, heads, hd] in the op type; adds to dk0, dv0 [F, kv, hd] and down_k[i], down_v[i] [n, kv, hd], all in the op
/// type.
at::Tensor step_attention_backward(const AttentionShape& shape, const PackPlan& plan, const at::Tensor& d_out,
                                   const AttentionResult& forward, const at::Tensor& q, const at::Tensor& k0,
                                   const at::Tensor& v0, const std::vector<at::Tensor>& own_k,
                                   const std::vector<at::Tensor>& own_v, const at::Tensor& dk0, const at::Tensor& dv0,
                                   const std::vector<at::Tensor>& d_own_k, const std::vector<at::Tensor>& d_own_v);

}  // namespace aerie::draft
