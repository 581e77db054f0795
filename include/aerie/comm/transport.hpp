// SPDX-License-Identifier: Apache-2.0
// Moves gradients and weights between ranks. One interface, two implementations chosen once per run: MPI on host buffers
// (here) and NCCL on device buffers (device/nccl_transport.hpp). Sums are of int64 fixed-point values, so that neither the
// order of additions nor the number of ranks changes a bit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <aerie/comm/comm.hpp>

namespace aerie::comm {

enum class MemoryKind { host, device };

class Transport {
 public:
  virtual ~Transport() = default;
  /// "mpi" or "nccl".
  virtual std::string_view name() const = 0;
  /// Where the buffers given below must live.
  virtual MemoryKind memory() const = 0;

  // All collective over the communicator this was made with. Device implementations order the work on their stream and
  // return before it is done. Counts are in elements, one entry per rank, equal on all ranks; entries may be zero.

  /// mine = this rank's segment of the sum over ranks of `all`. `all` holds sum(counts) values, `mine` counts[rank].
  /// `all` may be overwritten.
  virtual void reduce_scatter_sum(std::span<std::int64_t> all, std::span<std::int64_t> mine,
                                  std::span<const std::int64_t> counts) = 0;
  /// The same in fp32, for reduce = fast: the result depends on the order of additions, hence on the number of ranks.
  virtual void reduce_scatter_sum(std::span<float> all, std::span<float> mine, std::span<const std::int64_t> counts) = 0;
  /// all = the ranks' segments one after another. `mine` may be this rank's segment inside `all`.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                          std::span<const std::int64_t> byte_counts) = 0;
  /// In place.
  virtual void all_reduce_sum(std::span<std::int64_t> values) = 0;
};

/// Host buffers over MPI. Borrows `comm`. With Comm::solo() it copies.
std::unique_ptr<Transport> make_mpi_transport(const Comm& comm);

}  // namespace aerie::comm
