// SPDX-License-Identifier: Apache-2.0
// Row operations on the CPU: each row is widened to fp32, worked on by the row kernels and rounded back. Rows are shared out
// among LibTorch's threads; which thread takes a row changes nothing.
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <aerie/base/error.hpp>

#include "row_kernels.hpp"
#include "row_ops.hpp"

namespace aerie::target::cpu {
namespace {

constexpr std::int64_t grain = 16;  // rows that are worth a thread

void load(const float* in, float* out, std::size_t n) { std::memcpy(out, in, n * sizeof(float)); }
void load(const at::BFloat16* in, float* out, std::size_t n) {
  kernels::bf16_to_float(reinterpret_cast<const std::uint16_t*>(in), out, n);
}
void load(const at::Half* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}
void store(const float* in, float* out, std::size_t n) { std::memcpy(out, in, n * sizeof(float)); }
void store(const float* in, at::BFloat16* out, std::size_t n) {
  kernels::float_to_bf16(in, reinterpret_cast<std::uint16_t*>(out), n);
}
void store(const float* in, at::Half* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<at::Half>(in[i]);
}

/// Rounds fp32 values to T and back, as an operation of dtype T would have left them.
template <class T>
void round_to(float* x, std::size_t n, std::vector<T>& scratch) {
  if constexpr (!std::is_same_v<T, float>) {
    scratch.resize(std::max(scratch.size(), n));
    store(x, scratch.data(), n);
    load(scratch.data(), x, n);
  }
}

template <class T>
struct Row {
  explicit Row(std::size_t n) : values(n) {}
  std::vector<float> values;
  std::vector<T> rounding;
};

template <class T>
void normalise(float* x, std::size_t n, const float* w, float eps, bool hf, std::vector<T>& rounding) {
  kernels::scale(x, kernels::inverse_rms(x, n, eps), x, n);
  if (hf) round_to<T>(x, n, rounding);
  kernels::multiply(x, w, n);
}

/// transformers multiplies by cos and by sin and adds, each in the model's dtype.
template <class T>
void rotate_rounding_each(float* head, const float* cos, const float* sin, std::size_t half, std::vector<float>& products,
                          std::vector<T>& rounding) {
  products.resize(4 * half);
  float* p = products.data();
  for (std::size_t i = 0; i < half; ++i) {
    p[i] = head[i] * cos[i];
    p[half + i] = head[half + i] * cos[i];
    p[2 * half + i] = -head[half + i] * sin[i];
    p[3 * half + i] = head[i] * sin[i];
  }
  round_to<T>(p, 4 * half, rounding);
  for (std::size_t i = 0; i < 2 * half; ++i) head[i] = p[i] + p[2 * half + i];
}

template <class F>
void for_float_types(at::ScalarType type, F&& f) {
  switch (type) {
    case at::kFloat:
      return f(float{});
    case at::kBFloat16:
      return f(at::BFloat16{});
    case at::kHalf:
      return f(at::Half{});
    default:
      throw base::Bug("row operations know fp32, bf16 and fp16");
  }
}

}  // namespace

void rms_norm(const at::Tensor& x, const NormWeight& norm, bool hf, at::Tensor& out) {
  base::expect(x.is_contiguous() && out.is_contiguous() && x.scalar_type() == out.scalar_type(),
               "rows are contiguous, of one dtype");
  const auto n = static_cast<std::size_t>(x.size(1));
  const float* w = norm.weight.const_data_ptr<float>();
  for_float_types(x.scalar_type(), [&]<class T>(T) {
    const T* in = x.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    at::parallel_for(0, x.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
      Row<T> row(n);
      for (std::int64_t r = begin; r < end; ++r) {
        load(in + r * n, row.values.data(), n);
        normalise<T>(row.values.data(), n, w, static_cast<float>(norm.eps), hf, row.rounding);
        store(row.values.data(), to + r * n, n);
      }
    });
  });
}

void add_rows(at::Tensor& residual, const at::Tensor& y) {
  base::expect(residual.is_contiguous() && y.is_contiguous() && residual.sizes() == y.sizes(),
               "rows are contiguous, of one shape");
  const auto n = static_cast<std::size_t>(y.size(1));
  for_float_types(y.scalar_type(), [&]<class T>(T) {
    T* sum = residual.mutable_data_ptr<T>();
    const T* in = y.const_data_ptr<T>();
    at::parallel_for(0, y.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        kernels::add(sum + begin * n, in + begin * n, static_cast<std::size_t>(end - begin) * n);
      } else {
        Row<T> a(n), b(n);
        for (std::int64_t r = begin; r < end; ++r) {
          load(sum + r * n, a.values.data(), n);
          load(in + r * n, b.values.data(), n);
          kernels::add(a.values.data(), b.values.data(), n);
          store(a.values.data(), sum + r * n, n);
        }
      }
    });
  });
}

void swiglu(const at::Tensor& gate_up, bool hf, at::Tensor& out) {
  base::expect(gate_up.is_contiguous() && out.is_contiguous() && gate_up.size(1) == 2 * out.size(1), "gate_up is [R, 2 I]");
  const auto n = static_cast<std::size_t>(out.size(1));
  for_float_types(gate_up.scalar_type(), [&]<class T>(T) {
    const T* in = gate_up.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    at::parallel_for(0, out.size(0), grain, [&](std::int64_t begin, std::int64_t end) {
      Row<T> gate(n), up(n);
      for (std::int64_t r = begin; r < end; ++r) {
        load(in + r * 2 * n, gate.values.data(), n);
        load(in + (r * 2 + 1) * n, up.values.data(), n);
        kernels::silu(gate.values.data(), gate.values.data(), n);
        if (hf) round_to<T>(gate.values.data(), n, gate.rounding);
        kernels::multiply(gate.values.data(), up.values.data(), n);
        store(gate.values.data(), to + r * n, n);
      }
    });
  });
}

Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout, const NormWeight& q_norm, const NormWeight& k_norm,
                  const RopeAngles& angles, bool hf) {
  base::expect(qkv.is_contiguous() && qkv.size(1) == layout.columns() && layout.dim % 2 == 0, "the fused projection's columns");
  const std::int64_t tokens = qkv.size(0);
  base::expect(angles.cos.size(0) >= tokens && angles.cos.size(1) == layout.dim / 2, "an angle for every position");
  Heads out{at::empty({tokens, layout.heads, layout.dim}, qkv.options()),
            at::empty({tokens, layout.kv_heads, layout.dim}, qkv.options()),
            at::empty({tokens, layout.kv_heads, layout.dim}, qkv.options())};
  const auto dim = static_cast<std::size_t>(layout.dim), half = dim / 2;
  const auto nq = static_cast<std::size_t>(layout.heads), nkv = static_cast<std::size_t>(layout.kv_heads);
  for_float_types(qkv.scalar_type(), [&]<class T>(T) {
    at::parallel_for(0, tokens, grain, [&](std::int64_t begin, std::int64_t end) {
      Row<T> row((nq + nkv) * dim);
      std::vector<float> cos(half), sin(half), products;
      for (std::int64_t t = begin; t < end; ++t) {
        const T* in = qkv.const_data_ptr<T>() + t * layout.columns();
        load(in, row.values.data(), (nq + nkv) * dim);
        std::memcpy(cos.data(), angles.cos.const_data_ptr<float>() + t * half, half * sizeof(float));
        std::memcpy(sin.data(), angles.sin.const_data_ptr<float>() + t * half, half * sizeof(float));
        if (hf) {
          round_to<T>(cos.data(), half, row.rounding);
          round_to<T>(sin.data(), half, row.rounding);
        }
        for (std::size_t h = 0; h < nq + nkv; ++h) {
          float* head = row.values.data() + h * dim;
          const NormWeight& norm = h < nq ? q_norm : k_norm;
          if (norm.weight.defined()) {
            normalise<T>(head, dim, norm.weight.const_data_ptr<float>(), static_cast<float>(norm.eps), hf, row.rounding);
            if (hf) round_to<T>(head, dim, row.rounding);
          }
          if (hf) {
            rotate_rounding_each<T>(head, cos.data(), sin.data(), half, products, row.rounding);
          } else {
            kernels::rotate(head, head + half, cos.data(), sin.data(), half);
          }
        }
        store(row.values.data(), out.q.mutable_data_ptr<T>() + t * nq * dim, nq * dim);
        store(row.values.data() + nq * dim, out.k.mutable_data_ptr<T>() + t * nkv * dim, nkv * dim);
        std::memcpy(out.v.mutable_data_ptr<T>() + t * nkv * dim, in + (nq + nkv) * dim, nkv * dim * sizeof(T));
      }
    });
  });
  return out;
}

}  // namespace aerie::target::cpu
