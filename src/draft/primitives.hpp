// SPDX-License-Identifier: Apache-2.0
// Small differentiable pieces of the draft layer with explicit backward: RMSNorm, SwiGLU, rotary embedding, and the accumulation
// of weight gradients. Statistics and sums run in the "op" type: fp32, or fp64 when the tensors are fp64.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include <aerie/interchange/target_config.hpp>

namespace aerie::draft {

/// fp64 for fp64, fp32 for everything else.
c10::ScalarType op_type(c10::ScalarType compute);

/// y = w * x / sqrt(mean(x^2) + eps), over the last dimension; one rounding at the end. x [n, H], w [H].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Gradient with respect to x, in the op type; adds the weight's gradient to `weight_grad` (op type) when it is defined.
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, double eps,
                             const at::Tensor& weight_grad);

/// silu(gate) * up, rounded once. Both [n, I].
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
struct SwigluGrads {
  at::Tensor gate, up;
};
SwigluGrads swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up);

/// cos and sin, [positions, hd/2] in the op type, scaled by the RoPE's attention factor.
struct RotaryTable {
  at::Tensor cos, sin;
};
RotaryTable rotary_table(const interchange::RopeConfig& rope, std::int64_t head_dim, std::int64_t max_position_embeddings,
                         std::int64_t positions, at::TensorOptions options);
/// Half-split rotation of x [n, heads, hd] by the rows of `table` at `positions` [n] (i64). `inverse` rotates back: the backward.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions, bool inverse = false);

/// grad [out, in] (op type) += dy^T x, for dy [n, out], x [n, in] of any dtype.
void add_weight_grad(const at::Tensor& grad, const at::Tensor& dy, const at::Tensor& x);

}  // namespace aerie::draft
