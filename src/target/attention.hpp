// SPDX-License-Identifier: Apache-2.0
// Causal attention of one whole sample, grouped query heads included. It is never batched with another sample: kernels choose
// their tiles by the sizes they are given, so the size must be the sample's own length.
#pragma once
#include <ATen/core/Tensor.h>

#include "row_ops.hpp"

namespace aerie::target {

/// softmax(q k^T / sqrt(dim) + causal) v, [T, heads, dim] contiguous or not.
at::Tensor causal_attention(const Heads& heads);

}  // namespace aerie::target
