// SPDX-License-Identifier: Apache-2.0
// The optimizer's passes over flat vectors, on host or device as the tensors are: the same bits on both. All tensors contiguous.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/train/adamw.hpp>

namespace aerie::train::flat {

/// sum[i] += values[i] in fixed point, for the first values.numel() elements. Returns the index of the first value that is not
/// finite or out of range, or -1; the sum is of no use then. Waits for the device.
std::int64_t add_fixed_point(const at::Tensor& values, const at::Tensor& sum, std::int64_t packs_per_step);
void from_fixed_point(const at::Tensor& sum, const at::Tensor& out);
/// Sums of squares in fp64 of the blocks of `values`, whose length is whole blocks.
std::vector<double> block_sums(const at::Tensor& values);
void adamw(const AdamWOptions& options, const at::Tensor& grad, const at::Tensor& masters, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq);

}  // namespace aerie::train::flat
