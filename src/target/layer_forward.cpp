// SPDX-License-Identifier: Apache-2.0
// GEMMs and norms go block by block, so that a block's intermediate rows stay in the cache; attention goes sample by sample.
#include "layer_forward.hpp"

#include <ATen/ATen.h>

#include "attention.hpp"

namespace aerie::target {

Workspace::Workspace(std::int64_t group_rows, std::int64_t gemm_rows, std::int64_t hidden, std::int64_t inner,
                     const HeadLayout& layout, const at::TensorOptions& options)
    : qkv(at::empty({group_rows, layout.columns()}, options)),
      attention(at::zeros({group_rows, layout.heads * layout.dim}, options)),
      normed(at::empty({gemm_rows, hidden}, options)),
      projected(at::empty({gemm_rows, hidden}, options)),
      gate_up(at::empty({gemm_rows, 2 * inner}, options)),
      act(at::empty({gemm_rows, inner}, options)) {}

void layer_forward(const LayerWeights& weights, const LayerShape& shape, const RopeAngles& angles, const BatchPlan& plan,
                   const RowGroup& group, Workspace& work, at::Tensor& x) {
  const std::int64_t block = shape.gemm_rows;
  for (std::int64_t r = 0; r < group.rows; r += block) {
    rms_norm(x.narrow(0, group.first + r, block), weights.input_norm, shape.hf, work.normed);
    weights.qkv(work.normed, work.qkv.narrow(0, r, block), block);
  }
  std::int64_t used = 0;
  for (std::size_t i = group.samples_begin; i < group.samples_end; ++i) {
    const std::int64_t first = plan.samples[i].first - group.first, tokens = plan.samples[i].tokens;
    const Heads heads =
        split_heads(work.qkv.narrow(0, first, tokens), shape.heads, weights.q_norm, weights.k_norm, angles, shape.hf);
    work.attention.narrow(0, first, tokens).view({tokens, shape.heads.heads, shape.heads.dim}).copy_(causal_attention(heads));
    used = first + tokens;
  }
  work.attention.narrow(0, used, group.rows - used).zero_();  // a smaller group leaves a larger one's rows behind
  for (std::int64_t r = 0; r < group.rows; r += block) {
    at::Tensor rows = x.narrow(0, group.first + r, block);
    weights.out(work.attention.narrow(0, r, block), work.projected, block);
    add_rows(rows, work.projected);
    rms_norm(rows, weights.post_norm, shape.hf, work.normed);
    weights.gate_up(work.normed, work.gate_up, block);
    swiglu(work.gate_up, shape.hf, work.act);
    weights.down(work.act, work.projected, block);
    add_rows(rows, work.projected);
  }
}

}  // namespace aerie::target
