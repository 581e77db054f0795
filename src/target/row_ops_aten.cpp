// SPDX-License-Identifier: Apache-2.0
// Row operations by LibTorch, for the GPU (and, on the CPU, the reference that tests hold our kernels against). Separate
// operations in fp32, so that nothing is contracted; the norm's mean is the one reduction, and its shape is the caller's.
#include <ATen/ATen.h>

#include "row_ops.hpp"

namespace aerie::target::aten {
namespace {

at::Tensor normalise(const at::Tensor& x, const NormWeight& norm, bool hf, at::ScalarType dtype) {
  const at::Tensor wide = x.to(at::kFloat);
  at::Tensor y = wide * at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + norm.eps);
  if (hf) y = y.to(dtype).to(at::kFloat);
  return y.mul_(norm.weight);
}

/// x [T, heads, dim] fp32; cos, sin [T, 1, dim / 2].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool hf, at::ScalarType dtype) {
  const auto half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const auto rounded = [&](at::Tensor t) { return hf ? t.to(dtype).to(at::kFloat) : t; };
  return at::cat({rounded(a * cos) - rounded(b * sin), rounded(b * cos) + rounded(a * sin)}, -1).to(dtype);
}

}  // namespace

void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out) {
  out.copy_(normalise(x, norm, hf, x.scalar_type()));
}

void add_rows(at::Tensor& residual, const at::Tensor& y) { residual.add_(y); }

void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out) {
  const auto inner = out.size(1);
  at::Tensor act = at::silu(gate_up.narrow(1, 0, inner).to(at::kFloat));
  if (hf) act = act.to(gate_up.scalar_type()).to(at::kFloat);
  out.copy_(act.mul_(gate_up.narrow(1, inner, inner).to(at::kFloat)));
}

Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf) {
  const auto tokens = qkv.size(0);
  const auto dtype = qkv.scalar_type();
  const at::Tensor all = qkv.view({tokens, layout.heads + 2 * layout.kv_heads, layout.dim});
  at::Tensor cos = angles.cos.narrow(0, 0, tokens).unsqueeze(1), sin = angles.sin.narrow(0, 0, tokens).unsqueeze(1);
  if (hf) {
    cos = cos.to(dtype).to(at::kFloat);
    sin = sin.to(dtype).to(at::kFloat);
  }
  const auto rotated = [&](std::int64_t first, std::int64_t count, const NormWeight& norm) {
    at::Tensor x = all.narrow(1, first, count);
    if (norm.weight.defined()) {
      x = normalise(x, norm, hf, dtype);
      if (hf) x = x.to(dtype);
    }
    return rotate(x.to(at::kFloat), cos, sin, hf, dtype).contiguous();
  };
  return {rotated(0, layout.heads, q_norm), rotated(layout.heads, layout.kv_heads, k_norm),
          all.narrow(1, layout.heads + layout.kv_heads, layout.kv_heads).clone(at::MemoryFormat::Contiguous)};
}

}  // namespace aerie::target::aten
