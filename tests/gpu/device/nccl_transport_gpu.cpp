// SPDX-License-Identifier: Apache-2.0
// The NCCL transport against the MPI transport: equal sums, segments and gathered bytes, uneven and empty counts included. Runs
// with as many ranks as there are GPUs; one rank on one GPU makes every call too.
#include <cstdlib>
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <aerie/base/philox.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/device/device.hpp>
#include <aerie/device/nccl_transport.hpp>

namespace aerie::device {
namespace {

using Counts = std::vector<std::int64_t>;

std::span<std::int64_t> integers(const at::Tensor& t) {
  return {t.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(t.numel())};
}
std::span<std::byte> bytes(const at::Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), static_cast<std::size_t>(t.numel()) * t.element_size()};
}
at::Tensor random(std::int64_t n, std::uint64_t stream) {
  auto t = at::empty({n}, at::kLong);
  for (std::int64_t i = 0; i < n; ++i)
    integers(t)[static_cast<std::size_t>(i)] =
        static_cast<std::int64_t>(base::random_u64(31, base::Purpose::test, stream, static_cast<std::uint64_t>(i))) >> 4;
  return t;
}

bool required_gpu() {
  const char* required = std::getenv("AERIE_REQUIRE");
  return required && std::string(required).find("gpu") != std::string::npos;
}
/// Collective over world.
bool too_few_gpus(const comm::Comm& world) {
  return world.split_by_host().size() > (at::hasCUDA() ? static_cast<int>(at::getNumGPUs()) : 0);
}

TEST(NcclTransport, AgreesWithMpi) {
  const auto world = comm::Comm::borrow(MPI_COMM_WORLD);
  if (!at::hasCUDA() && required_gpu()) FAIL() << "no GPU, and AERIE_REQUIRE asks for one";
  if (too_few_gpus(world)) GTEST_SKIP() << "NCCL wants a GPU for each of the " << world.size() << " ranks";
  const auto device = choose_device("cuda", world);
  const auto nccl = make_nccl_transport(world, device), mpi = comm::make_mpi_transport(world);
  EXPECT_EQ(nccl->name(), "nccl");
  EXPECT_EQ(nccl->memory(), comm::MemoryKind::device);
  const auto ranks = static_cast<std::size_t>(world.size());
  Counts even(ranks, 1 << 20), uneven, one_empty;
  for (std::size_t r = 0; r < ranks; ++r) uneven.push_back(static_cast<std::int64_t>(7 * r + 1));
  one_empty = uneven;
  one_empty.front() = ranks > 1 ? 0 : 3;
  for (const auto& counts : {even, uneven, one_empty}) {
    const auto n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const auto own = counts[static_cast<std::size_t>(world.rank())];
    const auto all = random(n, static_cast<std::uint64_t>(world.rank()));
    const auto mine = at::zeros({own}, at::kLong), device_mine = mine.to(device);
    auto work = all.clone();
    const auto device_all = all.to(device);
    mpi->reduce_scatter_sum(integers(work), integers(mine), counts);
    nccl->reduce_scatter_sum(integers(device_all), integers(device_mine), counts);
    EXPECT_TRUE(at::equal(mine, device_mine.cpu()));

    const auto floats = all.to(at::kFloat).to(device);
    const auto float_mine = at::empty({own}, floats.options());
    nccl->reduce_scatter_sum(std::span<float>{floats.mutable_data_ptr<float>(), static_cast<std::size_t>(n)},
                             std::span<float>{float_mine.mutable_data_ptr<float>(), static_cast<std::size_t>(own)}, counts);
    if (ranks == 1) {
      EXPECT_TRUE(at::equal(float_mine, floats));
    }

    Counts byte_counts;
    for (const auto c : counts) byte_counts.push_back(8 * c);
    const auto gathered = at::zeros({n}, at::kLong), device_gathered = gathered.to(device);
    mpi->all_gather(bytes(mine), bytes(gathered), byte_counts);
    nccl->all_gather(bytes(device_mine), bytes(device_gathered), byte_counts);
    EXPECT_TRUE(at::equal(gathered, device_gathered.cpu()));

    auto reduced = all.clone();
    const auto device_reduced = all.to(device);
    mpi->all_reduce_sum(integers(reduced));
    nccl->all_reduce_sum(integers(device_reduced));
    EXPECT_TRUE(at::equal(reduced, device_reduced.cpu()));
  }
}

TEST(NcclTransport, EndsCleanlyAndCanBeMadeAgain) {
  const auto world = comm::Comm::borrow(MPI_COMM_WORLD);
  if (too_few_gpus(world)) GTEST_SKIP() << "NCCL wants a GPU for each of the " << world.size() << " ranks";
  const auto device = choose_device("cuda", world);
  for (int i = 0; i < 3; ++i) {
    const auto transport = make_nccl_transport(world, device);
    const auto t = at::ones({1000}, at::TensorOptions(device).dtype(at::kLong));
    transport->all_reduce_sum(integers(t));
    EXPECT_EQ(t.sum().item<std::int64_t>(), 1000 * world.size());
  }
}

}  // namespace
}  // namespace aerie::device
