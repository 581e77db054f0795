// SPDX-License-Identifier: Apache-2.0
// Transport over MPI on host buffers. MPI's counts are ints: longer segments go in rounds of at most 2^27 elements.
#include <aerie/comm/transport.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace aerie::comm {
namespace {

constexpr std::int64_t round_elements = std::int64_t{1} << 27;

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Comm& comm) : comm_(comm) {}
  std::string_view name() const override { return "mpi"; }
  MemoryKind memory() const override { return MemoryKind::host; }

  void reduce_scatter_sum(std::span<std::int64_t> all, std::span<std::int64_t> mine,
                          std::span<const std::int64_t> counts) override {
    reduce_scatter(all, mine, counts, MPI_INT64_T);
  }
  void reduce_scatter_sum(std::span<float> all, std::span<float> mine, std::span<const std::int64_t> counts) override {
    reduce_scatter(all, mine, counts, MPI_FLOAT);
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::int64_t> byte_counts) override {
    check_counts(byte_counts, static_cast<std::int64_t>(all.size()), static_cast<std::int64_t>(mine.size()));
    std::int64_t offset = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      const auto segment = all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(byte_counts[r]));
      if (r == comm_.rank() && segment.data() != mine.data() && !mine.empty())
        std::memmove(segment.data(), mine.data(), mine.size());
      if (comm_.size() > 1) comm_.broadcast(segment, r);
      offset += byte_counts[r];
    }
  }

  void all_reduce_sum(std::span<std::int64_t> values) override { comm_.sum(values); }

 private:
  template <class T>
  void reduce_scatter(std::span<T> all, std::span<T> mine, std::span<const std::int64_t> counts, MPI_Datatype type) {
    check_counts(counts, static_cast<std::int64_t>(all.size()), static_cast<std::int64_t>(mine.size()));
    if (comm_.size() == 1) {
      std::copy(all.begin(), all.end(), mine.begin());
      return;
    }
    // One reduction to each owner: no temporary of the whole vector's size, and any element count.
    std::int64_t offset = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      for (std::int64_t at = 0; at < counts[r]; at += round_elements) {
        const auto n = std::min(round_elements, counts[r] - at);
        check(MPI_Reduce(all.data() + offset + at, comm_.rank() == r ? mine.data() + at : nullptr, static_cast<int>(n), type,
                         MPI_SUM, r, comm_.get()));
      }
      offset += counts[r];
    }
  }

  void check_counts(std::span<const std::int64_t> counts, std::int64_t all, std::int64_t mine) const {
    base::expect(static_cast<int>(counts.size()) == comm_.size(), "one count per rank");
    base::expect(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == all, "counts add up to the whole buffer");
    base::expect(counts[static_cast<std::size_t>(comm_.rank())] == mine, "the own segment has the own count");
  }
  Comm comm_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const Comm& comm) { return std::make_unique<MpiTransport>(comm); }

}  // namespace aerie::comm
