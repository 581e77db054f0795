// SPDX-License-Identifier: Apache-2.0
// The fixed-row GEMM: one library call per block.
#include "linear.hpp"

#include <utility>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>

namespace aerie::target {

RowBlockedLinear::RowBlockedLinear(at::Tensor weight, at::Tensor bias) : weight_t_(weight.t()), bias_(std::move(bias)) {}

void RowBlockedLinear::operator()(const at::Tensor& x, at::Tensor out, std::int64_t gemm_rows) const {
  base::expect(x.size(0) == gemm_rows && out.size(0) == gemm_rows, "a target GEMM runs at gemm_rows rows");
  base::expect(x.is_contiguous() && out.is_contiguous(), "GEMM operands are whole rows");
  if (bias_.defined()) {
    at::addmm_out(out, bias_, x, weight_t_);
  } else {
    at::mm_out(out, x, weight_t_);
  }
}

}  // namespace aerie::target
