// SPDX-License-Identifier: Apache-2.0
// The MPI transport with uneven and zero counts against a plain sum that every rank computes for itself.
#include <aerie/comm/transport.hpp>

#include <numeric>

#include <gtest/gtest.h>

#include <aerie/base/philox.hpp>

namespace base = aerie::base;
namespace comm = aerie::comm;
using Values = std::vector<std::int64_t>;

namespace {
/// What rank `rank` brings: any rank can compute any other's.
Values brought_by(int rank, std::int64_t n) {
  Values out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int64_t>(base::random_u64(3, base::Purpose::test, static_cast<std::uint64_t>(rank), i) >>
                                       4);  // below 2^60: the sum of four fits
  return out;
}
std::vector<Values> count_lists(int ranks) {
  std::vector<Values> lists;
  Values even(static_cast<std::size_t>(ranks), 5), uneven, first_empty, last_only(static_cast<std::size_t>(ranks), 0);
  for (int r = 0; r < ranks; ++r) uneven.push_back(7 * r + 1);
  first_empty = uneven;
  first_empty[0] = 0;
  last_only.back() = 1000;
  for (auto& l : {even, uneven, first_empty, last_only, Values(static_cast<std::size_t>(ranks), 0)}) lists.push_back(l);
  return lists;
}
void check_reduce_scatter(const comm::Comm& c) {
  const auto transport = comm::make_mpi_transport(c);
  for (const auto& counts : count_lists(c.size())) {
    const auto n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    Values sum(static_cast<std::size_t>(n), 0);
    for (int r = 0; r < c.size(); ++r) {
      const auto v = brought_by(r, n);
      for (std::size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
    }
    auto all = brought_by(c.rank(), n);
    const auto rank = static_cast<std::size_t>(c.rank());
    Values mine(static_cast<std::size_t>(counts[rank]), -1);
    transport->reduce_scatter_sum(all, mine, counts);
    const auto offset = std::accumulate(counts.begin(), counts.begin() + c.rank(), std::int64_t{0});
    EXPECT_EQ(mine, Values(sum.begin() + offset, sum.begin() + offset + counts[rank]));

    auto reduced = brought_by(c.rank(), n);
    transport->all_reduce_sum(reduced);
    EXPECT_EQ(reduced, sum);
  }
}
void check_all_gather(const comm::Comm& c, bool in_place) {
  const auto transport = comm::make_mpi_transport(c);
  for (const auto& counts : count_lists(c.size())) {
    std::vector<std::byte> expected;
    for (int r = 0; r < c.size(); ++r)
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i)
        expected.push_back(static_cast<std::byte>(31 * r + i));
    const auto offset = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + c.rank(), std::int64_t{0}));
    const auto n = static_cast<std::size_t>(counts[static_cast<std::size_t>(c.rank())]);
    const std::vector<std::byte> own(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                                     expected.begin() + static_cast<std::ptrdiff_t>(offset + n));
    std::vector<std::byte> all(expected.size(), std::byte{0xee});
    if (in_place) std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
    transport->all_gather(in_place ? std::span<const std::byte>(all).subspan(offset, n) : std::span<const std::byte>(own), all,
                          counts);
    EXPECT_EQ(all, expected);
  }
}
}  // namespace

TEST(Transport, ReduceScatterAndAllReduceEqualAPlainSum) { check_reduce_scatter(comm::Comm::borrow(MPI_COMM_WORLD)); }
TEST(Transport, AllGather) {
  check_all_gather(comm::Comm::borrow(MPI_COMM_WORLD), false);
  check_all_gather(comm::Comm::borrow(MPI_COMM_WORLD), true);
}
TEST(Transport, SoloEqualsOneRank) {
  check_reduce_scatter(comm::Comm::solo());
  check_all_gather(comm::Comm::solo(), false);
  check_all_gather(comm::Comm::solo(), true);
}
TEST(Transport, CountsThatDoNotFitAreABug) {
  const auto w = comm::Comm::borrow(MPI_COMM_WORLD);
  const auto transport = comm::make_mpi_transport(w);
  Values all(10), mine(3), counts(static_cast<std::size_t>(w.size()), 3);  // 3 * ranks is never 10
  EXPECT_THROW(transport->reduce_scatter_sum(all, mine, counts), base::Bug);
  EXPECT_EQ(transport->name(), "mpi");
  EXPECT_EQ(transport->memory(), comm::MemoryKind::host);
}
