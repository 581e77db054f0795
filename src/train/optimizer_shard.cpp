// SPDX-License-Identifier: Apache-2.0
#include "optimizer_shard.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <aerie/base/error.hpp>
#include <aerie/train/fixed_point.hpp>

namespace aerie::train {

static_assert(ckpt::chunk_bytes == block_elements * static_cast<std::int64_t>(sizeof(float)),
              "a checkpoint chunk is one optimizer block");

OptimizerShard::OptimizerShard(const comm::Comm& world, comm::Transport& transport, std::int64_t elements)
    : world_(world),
      transport_(transport),
      sharding_(make_sharding(elements, world.size())),
      own_(sharding_.count(world.rank())) {
  const auto n = static_cast<std::size_t>(own_);
  for (auto* v : {&masters_, &exp_avg_, &exp_avg_sq_, &gradient_}) v->assign(n, 0.0F);
  summed_.assign(n, 0);
}

void OptimizerShard::reset(std::span<const float> flat) {
  base::expect(static_cast<std::int64_t>(flat.size()) == sharding_.elements, "the initial vector has the drafter's parameters");
  const auto begin = sharding_.begin(world_.rank());
  const auto n = std::clamp<std::int64_t>(sharding_.elements - begin, 0, own_);
  std::copy_n(flat.begin() + begin, n, masters_.begin());
  std::fill(exp_avg_.begin(), exp_avg_.end(), 0.0F);
  std::fill(exp_avg_sq_.begin(), exp_avg_sq_.end(), 0.0F);
}

double OptimizerShard::step(std::span<std::int64_t> gradients, AdamWOptions options, double clip) {
  transport_.reduce_scatter_sum(gradients, summed_, sharding_.counts());  // collective over world
  from_fixed_point(summed_, gradient_);
  // Block sums travel as their bits, and are combined in block order: the norm does not depend on the sharding.
  std::vector<std::int64_t> bits;
  for (std::int64_t b = 0; b < own_; b += block_elements)
    bits.push_back(
        std::bit_cast<std::int64_t>(sum_of_squares(std::span(gradient_).subspan(static_cast<std::size_t>(b), block_elements))));
  double total = 0;
  for (const auto b : world_.all_gather(std::span<const std::int64_t>(bits)))
    total += std::bit_cast<double>(b);  // collective over world
  const double norm = std::sqrt(total);
  options.grad_scale = clip > 0 && norm > clip ? clip / norm : 1.0;
  adamw_step(options, gradient_, masters_, exp_avg_, exp_avg_sq_);
  return norm;
}

void OptimizerShard::gather_masters(std::span<float> flat) {
  gathered_.resize(static_cast<std::size_t>(sharding_.padded()));
  transport_.all_gather(std::as_bytes(std::span(masters_)), std::as_writable_bytes(std::span(gathered_)),
                        sharding_.counts(sizeof(float)));
  std::copy_n(gathered_.begin(), flat.size(), flat.begin());
}

std::vector<ckpt::VectorInfo> OptimizerShard::vectors() const {
  const auto bytes = sharding_.elements * static_cast<std::int64_t>(sizeof(float));
  return {{"masters", "F32", bytes}, {"exp_avg", "F32", bytes}, {"exp_avg_sq", "F32", bytes}};
}

std::vector<ckpt::ChunkToWrite> OptimizerShard::chunks() const {
  std::vector<ckpt::ChunkToWrite> out;
  const auto begin = sharding_.begin(world_.rank());
  const std::array<std::pair<const char*, const std::vector<float>*>, 3> all{
      {{"masters", &masters_}, {"exp_avg", &exp_avg_}, {"exp_avg_sq", &exp_avg_sq_}}};
  for (const auto& [name, v] : all)
    for (std::int64_t b = 0; b < own_; b += block_elements) {
      const auto n = std::min(block_elements, sharding_.elements - (begin + b));  // the last block without its padding
      out.push_back({name, (begin + b) / block_elements,
                     std::as_bytes(std::span(*v).subspan(static_cast<std::size_t>(b), static_cast<std::size_t>(n)))});
    }
  return out;
}

void OptimizerShard::load(const ckpt::Checkpoint& checkpoint) {
  const auto begin = sharding_.begin(world_.rank());
  for (auto& [name, v] :
       {std::pair{"masters", &masters_}, std::pair{"exp_avg", &exp_avg_}, std::pair{"exp_avg_sq", &exp_avg_sq_}})
    for (std::int64_t b = 0; b < own_; b += block_elements) {
      const auto n = std::min(block_elements, sharding_.elements - (begin + b));
      ckpt::read_chunk(checkpoint, name, (begin + b) / block_elements,
                       std::as_writable_bytes(std::span(*v).subspan(static_cast<std::size_t>(b), static_cast<std::size_t>(n))));
    }
}

}  // namespace aerie::train
