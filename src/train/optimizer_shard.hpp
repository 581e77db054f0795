// SPDX-License-Identifier: Apache-2.0
// This rank's share of the optimizer: masters and moments of its blocks, the step from summed fixed-point gradients, and its
// chunks of a checkpoint. Collective calls say so.
#pragma once
#include <cstdint>
#include <vector>

#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/comm/transport.hpp>
#include <aerie/train/adamw.hpp>
#include <aerie/train/sharding.hpp>

namespace aerie::train {

class OptimizerShard {
 public:
  OptimizerShard(const comm::Comm& world, comm::Transport& transport, std::int64_t elements);
  const Sharding& sharding() const { return sharding_; }

  /// Masters from the unpadded vector `flat`, moments zero. Local.
  void reset(std::span<const float> flat);
  /// Sums `gradients` (padded, fixed point, clobbered) over ranks, clips by the global norm and steps. Returns the norm before
  /// clipping. Collective over world.
  double step(std::span<std::int64_t> gradients, AdamWOptions options, double clip);
  /// Everybody's masters, unpadded, into `flat`. Collective over world.
  void gather_masters(std::span<float> flat);

  /// The vectors and this rank's chunks, borrowed until the next step.
  std::vector<ckpt::VectorInfo> vectors() const;
  std::vector<ckpt::ChunkToWrite> chunks() const;
  /// Reads this rank's blocks. Throws DataError. Local.
  void load(const ckpt::Checkpoint& checkpoint);

 private:
  std::span<float> part(std::vector<float>& v, std::int64_t block);
  comm::Comm world_;
  comm::Transport& transport_;
  Sharding sharding_;
  std::int64_t own_;  // elements, padding included
  std::vector<float> masters_, exp_avg_, exp_avg_sq_, gradient_;
  std::vector<std::int64_t> summed_;
  std::vector<float> gathered_;
};

}  // namespace aerie::train
