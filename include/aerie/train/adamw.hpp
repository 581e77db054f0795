// SPDX-License-Identifier: Apache-2.0
// AdamW on fp32 masters, elementwise, with explicit fused multiply-adds: vector body and scalar tail are the same arithmetic, so
// a shard of the vector gets the same bits as the whole.
#pragma once
#include <cstdint>
#include <span>

namespace aerie::train {

/// Elements of one block: shards are whole blocks, norms are summed per block, a checkpoint chunk is one block.
constexpr std::int64_t block_elements = std::int64_t{1} << 20;

struct AdamWOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  double grad_scale = 1;  // clipping
  std::int64_t step = 1;  // counts from 1, for the bias corrections
};
/// What the step multiplies by, rounded to fp32 once: the same on host and device.
struct AdamWFactors {
  float b1, b2, c1, c2, step_size, inverse_root, eps, scale, decay;
};
AdamWFactors adamw_factors(const AdamWOptions& options);

/// All spans have one length. Updates masters and both moments in place. Decoupled weight decay (Loshchilov and Hutter, arXiv
/// 1711.05101).
void adamw_step(const AdamWOptions& options, std::span<const float> grad, std::span<float> masters, std::span<float> exp_avg,
                std::span<float> exp_avg_sq);

/// Sum of squares of one block in fp64, in index order.
double sum_of_squares(std::span<const float> block);

}  // namespace aerie::train
