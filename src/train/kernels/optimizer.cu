// SPDX-License-Identifier: Apache-2.0
// Bound by memory: each element is read and written once, four at a time.
#include "optimizer.hpp"

#include <cuda_runtime.h>

namespace aerie::train::cuda {
namespace {

constexpr int threads = 256;
constexpr double scale_2_48 = 281474976710656.0;

int grid_for(std::int64_t n) {
  const std::int64_t wanted = (n + threads - 1) / threads;
  return static_cast<int>(wanted < 8192 ? (wanted > 0 ? wanted : 1) : 8192);
}
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

__device__ std::int64_t index0() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__device__ void add_one(float v, std::int64_t& s, std::int64_t i, float limit, std::int64_t* bad) {
  if (fabsf(v) < limit)  // false for NaN
    s += __double2ll_rn(__dmul_rn(static_cast<double>(v), scale_2_48));
  else
    atomicMin(reinterpret_cast<long long*>(bad), static_cast<long long>(i));
}

__global__ void add_fixed_point_kernel(const float* values, std::int64_t* sum, std::int64_t n, float limit, std::int64_t* bad) {
  const std::int64_t quads = n / 4;
  const auto* v4 = reinterpret_cast<const float4*>(values);
  auto* s2 = reinterpret_cast<longlong2*>(sum);
  for (std::int64_t q = index0(); q < quads; q += stride()) {
    const float4 v = v4[q];
    longlong2 a = s2[2 * q], b = s2[2 * q + 1];
    std::int64_t s[4] = {a.x, a.y, b.x, b.y};
    add_one(v.x, s[0], 4 * q, limit, bad);
    add_one(v.y, s[1], 4 * q + 1, limit, bad);
    add_one(v.z, s[2], 4 * q + 2, limit, bad);
    add_one(v.w, s[3], 4 * q + 3, limit, bad);
    s2[2 * q] = make_longlong2(s[0], s[1]);
    s2[2 * q + 1] = make_longlong2(s[2], s[3]);
  }
  for (std::int64_t i = 4 * quads + index0(); i < n; i += stride()) add_one(values[i], sum[i], i, limit, bad);
}

__global__ void from_fixed_point_kernel(const std::int64_t* sum, float* out, std::int64_t n) {
  for (std::int64_t i = index0(); i < n; i += stride())
    out[i] = __double2float_rn(__dmul_rn(__ll2double_rn(sum[i]), 1.0 / scale_2_48));  // a power of two: exact
}

/// Eight threads a block of the vector, each one of the eight interleaved sums in index order; loads run ahead of the additions.
__global__ void block_sums_kernel(const float* values, std::int64_t blocks, std::int64_t block, double* sums) {
  const std::int64_t lane = threadIdx.x % 8, b = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 8) + threadIdx.x / 8;
  if (b >= blocks) return;
  const float* v = values + b * block;
  constexpr int ahead = 32;
  double s = 0;
  std::int64_t i = lane;
  for (; i + 8 * (ahead - 1) < block; i += 8 * ahead) {
    float x[ahead];
#pragma unroll
    for (int j = 0; j < ahead; ++j) x[j] = v[i + 8 * j];
#pragma unroll
    for (int j = 0; j < ahead; ++j) s = __dadd_rn(s, __dmul_rn(static_cast<double>(x[j]), static_cast<double>(x[j])));
  }
  for (; i < block; i += 8) s = __dadd_rn(s, __dmul_rn(static_cast<double>(v[i]), static_cast<double>(v[i])));
  // ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)); every group of eight is whole, so the mask is the active threads.
  const unsigned mask = __activemask();
  for (int step = 4; step > 0; step /= 2) s = __dadd_rn(s, __shfl_down_sync(mask, s, step, 8));
  if (lane == 0) sums[b] = s;
}

__global__ void adamw_kernel(AdamWFactors f, const float* grad, float* masters, float* exp_avg, float* exp_avg_sq,
                             std::int64_t n) {
  for (std::int64_t i = index0(); i < n; i += stride()) {
    const float g = __fmul_rn(grad[i], f.scale);
    const float m = __fmaf_rn(f.b1, exp_avg[i], __fmul_rn(f.c1, g));
    const float v = __fmaf_rn(f.b2, exp_avg_sq[i], __fmul_rn(__fmul_rn(f.c2, g), g));
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = __fmaf_rn(__fsqrt_rn(v), f.inverse_root, f.eps);
    masters[i] = __fmaf_rn(f.step_size, __fdiv_rn(m, denominator), __fmul_rn(masters[i], f.decay));
  }
}

}  // namespace

void add_fixed_point(const float* values, std::int64_t* sum, std::int64_t n, float limit, std::int64_t* bad, void* stream) {
  add_fixed_point_kernel<<<grid_for(n / 4 + 1), threads, 0, stream_of(stream)>>>(values, sum, n, limit, bad);
}
void from_fixed_point(const std::int64_t* sum, float* out, std::int64_t n, void* stream) {
  from_fixed_point_kernel<<<grid_for(n), threads, 0, stream_of(stream)>>>(sum, out, n);
}
void block_sums(const float* values, std::int64_t blocks, std::int64_t block, double* sums, void* stream) {
  if (blocks == 0) return;
  constexpr int per_launch = 32;  // one warp: four blocks of the vector, so that they spread over the multiprocessors
  block_sums_kernel<<<static_cast<int>((blocks + 3) / 4), per_launch, 0, stream_of(stream)>>>(values, blocks, block, sums);
}
void adamw(const AdamWFactors& f, const float* grad, float* masters, float* exp_avg, float* exp_avg_sq, std::int64_t n,
           void* stream) {
  adamw_kernel<<<grid_for(n), threads, 0, stream_of(stream)>>>(f, grad, masters, exp_avg, exp_avg_sq, n);
}
const char* launch_error() {
  const cudaError_t code = cudaGetLastError();
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}

}  // namespace aerie::train::cuda
