// SPDX-License-Identifier: Apache-2.0
// Picks the implementation of the row operations by the device that the rows live on.
#include "row_ops.hpp"

#include <ATen/ATen.h>

namespace aerie::target {

void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out) {
  return x.is_cpu() ? cpu::rms_norm(x, norm, hf, out) : aten::rms_norm(x, norm, hf, out);
}

void add_rows(at::Tensor& residual, const at::Tensor& y) {
  return residual.is_cpu() ? cpu::add_rows(residual, y) : aten::add_rows(residual, y);
}

void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out) {
  return gate_up.is_cpu() ? cpu::swiglu(gate_up, hf, out) : aten::swiglu(gate_up, hf, out);
}

Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf) {
  return qkv.is_cpu() ? cpu::split_heads(qkv, layout, q_norm, k_norm, angles, hf)
                      : aten::split_heads(qkv, layout, q_norm, k_norm, angles, hf);
}

}  // namespace aerie::target
