// SPDX-License-Identifier: Apache-2.0
// This rank's share of the optimizer: masters and moments of its blocks, the step from summed gradients, and its chunks of a
// checkpoint. Lives where the gradients do; a transport that wants other memory gets copies. Collective calls say so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/comm/transport.hpp>
#include <aerie/train/adamw.hpp>
#include <aerie/train/sharding.hpp>

namespace aerie::train {

class OptimizerShard {
 public:
  OptimizerShard(const comm::Comm& world, comm::Transport& transport, std::int64_t elements, c10::Device device);
  const Sharding& sharding() const { return sharding_; }

  /// Masters from the unpadded vector `flat` (fp32, host), moments zero. Local.
  void reset(const at::Tensor& flat);
  /// Sums `gradients` (padded, clobbered, on the device: i64 fixed point, or fp32 with reduce = fast) over ranks, clips by the
  /// global norm and steps. Returns the norm before clipping; one that is not finite
  /// leaves everything as it was. Collective over world.
  double step(const at::Tensor& gradients, AdamWOptions options, double clip);
  /// Everybody's masters as compute weights: `flat` is padded, on the device, of any floating dtype. Collective over world.
  void gather_weights(const at::Tensor& flat);
  /// Everybody's masters, fp32, unpadded, on the host. Collective over world.
  at::Tensor gather_masters();

  /// The vectors and this rank's chunks, borrowed until the next step. The bytes lie where the shard does: copy_chunk() brings
  /// them to the host.
  std::vector<ckpt::VectorInfo> vectors() const;
  std::vector<ckpt::ChunkToWrite> chunks() const;
  void copy_chunk(std::span<const std::byte> from, std::span<std::byte> to) const;
  /// Reads this rank's blocks. Throws DataError. Local.
  void load(const ckpt::Checkpoint& checkpoint);

 private:
  template <class T>
  at::Tensor summed(const at::Tensor& gradients);
  void gather(const at::Tensor& mine, const at::Tensor& all);
  bool needs_copies() const { return device_.is_cuda() && transport_.memory() == comm::MemoryKind::host; }

  comm::Comm world_;
  comm::Transport& transport_;
  Sharding sharding_;
  c10::Device device_;
  std::int64_t own_;                           // elements, padding included
  at::Tensor masters_, exp_avg_, exp_avg_sq_;  // [own] fp32
  at::Tensor gradient_;                        // [own] fp32
  at::Tensor host_all_, host_own_;             // pinned, made when first needed
};

}  // namespace aerie::train
