// SPDX-License-Identifier: Apache-2.0
// Everything in a layer that is not a GEMM or attention: norms, rotation with the split into heads, SwiGLU, residual sums.
// Two implementations behind one set of functions: our own row kernels on the CPU, LibTorch operations elsewhere (and as the
// reference in tests). Both compute in fp32 and round once, unless `hf` asks for transformers' rounding points.
// Holds throughout: a row's result depends on that row alone. Where LibTorch reduces over a row, the caller gives blocks of a
// fixed number of rows.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace aerie::target {

/// How the columns of the fused projection [q heads | k heads | v heads] are laid out, and what happens to each head.
struct HeadLayout {
  std::int64_t heads = 0, kv_heads = 0, dim = 0;
  std::int64_t columns() const { return (heads + 2 * kv_heads) * dim; }
};

/// Cosines and sines by position, [positions, dim / 2] fp32, the factor A multiplied in.
struct RopeAngles {
  at::Tensor cos, sin;
};

/// Heads of one sample, token-major and freshly allocated, so that their alignment is the same whatever the sample's place.
struct Heads {
  at::Tensor q;     // [T, heads, dim]
  at::Tensor k, v;  // [T, kv_heads, dim]
};

struct NormWeight {
  at::Tensor weight;  // fp32 (values of the compute dtype); undefined: no norm
  double eps = 0.0;
};

// out [R, n] = N(x [R, n]; w, eps).
// sum(residual [R, n], y [R, n]) in place.
// out [R, I] = silu(gate) * up of gate_up [R, 2 I].
// heads of qkv [T, columns]: optional norm of every q and k head, then the rotation at positions 0..T-1.
void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out);
void add_rows(at::Tensor& residual, const at::Tensor& y);
void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out);
Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf);

namespace cpu {
void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out);
void add_rows(at::Tensor& residual, const at::Tensor& y);
void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out);
Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf);
}  // namespace cpu

namespace aten {
void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out);
void add_rows(at::Tensor& residual, const at::Tensor& y);
void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out);
Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf);
}  // namespace aten

}  // namespace aerie::target
