// SPDX-License-Identifier: Apache-2.0
// A dense layer that runs at one fixed number of rows. A GEMM's kernel, and with it the order of its sums, depends on the
// number of rows; so every call has the same number, blocks hold rows of any samples, and the last one is padded with zeros.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace aerie::target {

class RowBlockedLinear {
 public:
  RowBlockedLinear() = default;
  /// weight [out, in]; bias [out] or undefined; both in the compute dtype, on the compute device.
  RowBlockedLinear(at::Tensor weight, at::Tensor bias);
  /// out [gemm_rows, out] = x [gemm_rows, in] weight^T (+ bias). Throws Bug for another number of rows.
  void operator()(const at::Tensor& x, at::Tensor out, std::int64_t gemm_rows) const;

 private:
  at::Tensor weight_t_, bias_;  // weight_t_ is a view [in, out]
};

/// `n` rounded up to whole blocks.
constexpr std::int64_t whole_blocks(std::int64_t n, std::int64_t gemm_rows) {
  return (n + gemm_rows - 1) / gemm_rows * gemm_rows;
}

}  // namespace aerie::target
