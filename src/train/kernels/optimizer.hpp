// SPDX-License-Identifier: Apache-2.0
// The optimizer's passes over flat device vectors: raw pointers, sizes, a stream (a cudaStream_t as void*). Every operation is
// one IEEE operation, as in fixed_point.cpp and adamw.cpp: the same bits as on the host. Launches return before the work is done.
#pragma once
#include <cstdint>

namespace aerie::train::cuda {

/// sum[i] += nearest(values[i] * 2^48). Where |values[i]| >= limit or is NaN nothing is added and *bad becomes the least such i;
/// *bad (device memory) must hold a larger number before.
void add_fixed_point(const float* values, std::int64_t* sum, std::int64_t n, float limit, std::int64_t* bad, void* stream);
void from_fixed_point(const std::int64_t* sum, float* out, std::int64_t n, void* stream);
/// sums[b] = sum of squares of elements [b * block, (b + 1) * block) in fp64, in the order of train::sum_of_squares.
void block_sums(const float* values, std::int64_t blocks, std::int64_t block, double* sums, void* stream);

/// The constants of a step in fp32, as adamw_step() derives them from AdamWOptions.
struct AdamWFactors {
  float b1, b2, c1, c2, step_size, inverse_root, eps, scale, decay;
};
void adamw(const AdamWFactors& f, const float* grad, float* masters, float* exp_avg, float* exp_avg_sq, std::int64_t n,
           void* stream);

/// CUDA's text when a launch before failed; null otherwise.
const char* launch_error();

}  // namespace aerie::train::cuda
