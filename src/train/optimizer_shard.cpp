// SPDX-License-Identifier: Apache-2.0
#include "optimizer_shard.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>

#include "flat_math.hpp"

namespace aerie::train {
namespace {

static_assert(ckpt::chunk_bytes == block_elements * static_cast<std::int64_t>(sizeof(float)),
              "a checkpoint chunk is one optimizer block");
constexpr std::array<const char*, 3> vector_names{"masters", "exp_avg", "exp_avg_sq"};

template <class T>
std::span<T> values(const at::Tensor& t) {  // addresses only: of a device as well
  return {t.mutable_data_ptr<T>(), static_cast<std::size_t>(t.numel())};
}
std::span<std::byte> bytes(const at::Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), static_cast<std::size_t>(t.numel()) * t.element_size()};
}
/// `t` with this size and type, kept between calls; pinned, for copies from and to a device.
at::Tensor& pinned(at::Tensor& t, std::int64_t n, c10::ScalarType dtype) {
  if (!t.defined() || t.numel() != n || t.scalar_type() != dtype)
    t = at::empty({n}, at::TensorOptions().dtype(dtype).pinned_memory(true));
  return t;
}

}  // namespace

OptimizerShard::OptimizerShard(const comm::Comm& world, comm::Transport& transport, std::int64_t elements, c10::Device device)
    : world_(world),
      transport_(transport),
      sharding_(make_sharding(elements, world.size())),
      device_(device),
      own_(sharding_.count(world.rank())) {
  base::expect(device.is_cuda() || transport.memory() == comm::MemoryKind::host, "a device transport serves device vectors");
  for (auto* v : {&masters_, &exp_avg_, &exp_avg_sq_, &gradient_})
    *v = at::zeros({own_}, at::TensorOptions(device).dtype(at::kFloat));
}

void OptimizerShard::reset(const at::Tensor& flat) {
  base::expect(flat.numel() == sharding_.elements, "the initial vector has the drafter's parameters");
  const auto begin = sharding_.begin(world_.rank());
  const auto n = std::clamp<std::int64_t>(sharding_.elements - begin, 0, own_);
  for (auto* v : {&masters_, &exp_avg_, &exp_avg_sq_}) v->zero_();
  if (n > 0) masters_.narrow(0, 0, n).copy_(flat.narrow(0, begin, n));
}

/// This rank's segment of the sum over ranks. Collective over world.
template <class T>
at::Tensor OptimizerShard::summed(const at::Tensor& gradients) {
  const auto counts = sharding_.counts();
  if (world_.size() == 1 && needs_copies()) return gradients;
  if (!needs_copies()) {
    const auto mine = at::empty({own_}, gradients.options());
    transport_.reduce_scatter_sum(values<T>(gradients), values<T>(mine), counts);
    return mine;
  }
  auto& all = pinned(host_all_, gradients.numel(), gradients.scalar_type());
  auto& mine = pinned(host_own_, own_, gradients.scalar_type());
  all.copy_(gradients);  // waits
  transport_.reduce_scatter_sum(values<T>(all), values<T>(mine), counts);
  return mine.to(device_);
}

double OptimizerShard::step(const at::Tensor& gradients, AdamWOptions options, double clip) {
  base::expect(gradients.numel() == sharding_.padded() && gradients.device() == device_,
               "gradients are padded and on the device");
  if (gradients.scalar_type() == at::kLong)
    flat::from_fixed_point(summed<std::int64_t>(gradients), gradient_);  // collective over world
  else
    gradient_.copy_(summed<float>(gradients));  // collective over world
  // Block sums travel as their bits, and are combined in block order: the norm does not depend on the sharding.
  std::vector<std::int64_t> bits;
  for (const auto s : flat::block_sums(gradient_)) bits.push_back(std::bit_cast<std::int64_t>(s));
  double total = 0;
  for (const auto b : world_.all_gather(std::span<const std::int64_t>(bits)))
    total += std::bit_cast<double>(b);  // collective over world
  const double norm = std::sqrt(total);
  if (!std::isfinite(norm)) return norm;  // the sum over ranks overflowed: nothing is changed
  options.grad_scale = clip > 0 && norm > clip ? clip / norm : 1.0;
  flat::adamw(options, gradient_, masters_, exp_avg_, exp_avg_sq_);
  return norm;
}

/// Collective over world.
void OptimizerShard::gather(const at::Tensor& mine, const at::Tensor& all) {
  const auto counts = sharding_.counts(static_cast<std::int64_t>(mine.element_size()));
  if (mine.is_cuda() && needs_copies()) {
    if (world_.size() == 1) {
      all.copy_(mine);
      return;
    }
    auto& host_mine = pinned(host_own_, own_, mine.scalar_type());
    auto& host_all = pinned(host_all_, all.numel(), all.scalar_type());
    host_mine.copy_(mine);  // waits
    transport_.all_gather(bytes(host_mine), bytes(host_all), counts);
    all.copy_(host_all);
    return;
  }
  transport_.all_gather(bytes(mine), bytes(all), counts);
}

void OptimizerShard::gather_weights(const at::Tensor& flat) {
  base::expect(flat.numel() == sharding_.padded() && flat.device() == device_, "weights are padded and on the device");
  gather(masters_.to(flat.scalar_type()), flat);  // collective over world
}

at::Tensor OptimizerShard::gather_masters() {
  const auto all = at::empty({sharding_.padded()}, masters_.options());
  gather(masters_, all);  // collective over world
  return all.narrow(0, 0, sharding_.elements).cpu();
}

std::vector<ckpt::VectorInfo> OptimizerShard::vectors() const {
  const auto size = sharding_.elements * static_cast<std::int64_t>(sizeof(float));
  std::vector<ckpt::VectorInfo> out;
  for (const auto* name : vector_names) out.push_back({name, "F32", size});
  return out;
}

std::vector<ckpt::ChunkToWrite> OptimizerShard::chunks() const {
  std::vector<ckpt::ChunkToWrite> out;
  const auto begin = sharding_.begin(world_.rank());
  const std::array<const at::Tensor*, 3> all{&masters_, &exp_avg_, &exp_avg_sq_};
  for (std::size_t v = 0; v < all.size(); ++v) {
    const auto whole = values<float>(*all[v]);
    for (std::int64_t b = 0; b < own_; b += block_elements) {
      const auto n = std::min(block_elements, sharding_.elements - (begin + b));  // the last block without its padding
      out.push_back({vector_names[v], (begin + b) / block_elements,
                     std::as_bytes(whole.subspan(static_cast<std::size_t>(b), static_cast<std::size_t>(n)))});
    }
  }
  return out;
}

void OptimizerShard::copy_chunk(std::span<const std::byte> from, std::span<std::byte> to) const {
  const auto n = static_cast<std::int64_t>(from.size());
  const auto options = at::TensorOptions().dtype(at::kByte);
  auto* source = const_cast<std::byte*>(from.data());  // NOLINT: from_blob takes what it may not change
  at::from_blob(to.data(), {n}, options).copy_(at::from_blob(source, {n}, options.device(device_)));
}

void OptimizerShard::load(const ckpt::Checkpoint& checkpoint) {
  const auto begin = sharding_.begin(world_.rank());
  const std::array<at::Tensor*, 3> all{&masters_, &exp_avg_, &exp_avg_sq_};
  for (std::size_t v = 0; v < all.size(); ++v) {
    const auto host = all[v]->is_cuda() ? at::zeros({own_}, at::kFloat) : *all[v];
    const auto whole = values<float>(host);
    for (std::int64_t b = 0; b < own_; b += block_elements) {
      const auto n = std::min(block_elements, sharding_.elements - (begin + b));
      ckpt::read_chunk(checkpoint, vector_names[v], (begin + b) / block_elements,
                       std::as_writable_bytes(whole.subspan(static_cast<std::size_t>(b), static_cast<std::size_t>(n))));
    }
    if (all[v]->is_cuda()) all[v]->copy_(host);
  }
}

}  // namespace aerie::train
