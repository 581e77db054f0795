// SPDX-License-Identifier: Apache-2.0
// Collectives against what the ranks' numbers say they must be, and solo() against a communicator of one rank.
#include <aerie/comm/comm.hpp>

#include <gtest/gtest.h>

namespace comm = aerie::comm;
using comm::Comm;

namespace {
Comm world() { return Comm::borrow(MPI_COMM_WORLD); }
std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank % 3 == 1 ? 0 : 5 * rank + 1), static_cast<char>('a' + rank)) +
         (rank == 2 ? std::string(1, '\0') : "");
}
}  // namespace

TEST(Comm, Reductions) {
  const auto w = world();
  const std::int64_t n = w.size(), big = std::int64_t{1} << 40;
  EXPECT_EQ(w.sum(big + w.rank()), big * n + n * (n - 1) / 2);
  EXPECT_EQ(w.max(-w.rank()), 0);
  EXPECT_EQ(w.min(-w.rank()), 1 - n);
  std::vector<std::int64_t> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) * (w.rank() + 1);
  w.sum(values);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<std::int64_t>(i) * n * (n + 1) / 2);
  std::vector<std::int64_t> nothing;
  w.sum(nothing);
  w.barrier();
}

TEST(Comm, BroadcastFromEveryRoot) {
  const auto w = world();
  for (int root = 0; root < w.size(); ++root) {
    EXPECT_EQ(w.broadcast(std::int64_t{100} + w.rank(), root), 100 + root);
    EXPECT_EQ(w.broadcast(text_of(w.rank()), root), text_of(root));
    std::vector<std::byte> bytes(777, static_cast<std::byte>(w.rank()));
    w.broadcast(bytes, root);
    EXPECT_EQ(bytes, std::vector<std::byte>(777, static_cast<std::byte>(root)));
  }
}

TEST(Comm, GathersOfDifferingLengths) {
  const auto w = world();
  const auto texts = w.all_gather(text_of(w.rank()));
  const auto ranks = w.all_gather(std::int64_t{10} * w.rank());
  std::vector<std::int64_t> mine(static_cast<std::size_t>(w.rank() % 2 == 0 ? w.rank() : 3), w.rank()),
      expected;  // rank 0 brings none
  const auto all = w.all_gather(std::span<const std::int64_t>(mine));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(w.size()));
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(w.size()));
  for (int r = 0; r < w.size(); ++r) {
    EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)], 10 * r);
    expected.insert(expected.end(), static_cast<std::size_t>(r % 2 == 0 ? r : 3), r);
  }
  EXPECT_EQ(all, expected);
}

TEST(Comm, SplitByHostKeepsTheOrder) {
  const auto w = world();
  const auto host = w.split_by_host();  // all ranks of this test share one host
  EXPECT_EQ(host.size(), w.size());
  EXPECT_EQ(host.rank(), w.rank());
  EXPECT_NE(host.get(), w.get());
}

TEST(Comm, SoloIsOneRank) {
  const auto solo = Comm::solo(), self = Comm::borrow(MPI_COMM_SELF);
  EXPECT_EQ(solo.get(), MPI_COMM_NULL);
  for (const auto& c : {solo, self}) {
    EXPECT_EQ(c.size(), 1);
    EXPECT_EQ(c.rank(), 0);
    EXPECT_TRUE(c.is_root());
    EXPECT_EQ(c.sum(7), 7);
    EXPECT_EQ(c.max(7), 7);
    EXPECT_EQ(c.min(7), 7);
    EXPECT_EQ(c.broadcast(std::int64_t{9}), 9);
    EXPECT_EQ(c.broadcast("text"), "text");
    EXPECT_EQ(c.all_gather("text"), std::vector<std::string>{"text"});
    EXPECT_EQ(c.all_gather(std::int64_t{3}), std::vector<std::int64_t>{3});
    const std::vector<std::int64_t> values{1, 2, 3};
    EXPECT_EQ(c.all_gather(std::span<const std::int64_t>(values)), values);
    EXPECT_EQ(c.split_by_host().size(), 1);
    c.barrier();
  }
}

TEST(Comm, CheckCarriesMpisOwnText) {
  try {
    comm::check(MPI_ERR_COMM);
    FAIL() << "an error code passed";
  } catch (const aerie::base::PeerError& e) {
    EXPECT_EQ(e.code(), aerie::base::ExitCode::peer);
    EXPECT_NE(std::string(e.what()).find("MPI_ERR_COMM"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(comm::check(MPI_SUCCESS));
}
