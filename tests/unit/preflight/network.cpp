// SPDX-License-Identifier: Apache-2.0
// A slow node and one that gets sums wrong are named, over MPI and over a network that stands for NCCL.
#include <aerie/base/error.hpp>

#include "nodes.hpp"

namespace {
using namespace aerie;
using namespace std::chrono_literals;
using preflight::Result;
using test::Preflight;

struct Network : Preflight {
  Network() { a_node_for_each_rank(); }
};

TEST_F(Network, alone_or_on_one_node_there_is_nothing_to_compare) {
  request.rehearsal.host = host(0);
  const auto f = find("mpi");
  EXPECT_EQ(f.result, Result::pass);
  EXPECT_TELLS(f, world.size() == 1 ? "one rank: nothing to compare" : "over the ranks of one node: nothing to compare");
  EXPECT_TRUE(f.details.at("nodes").at(0).at("bytes_per_s").is_null());
  EXPECT_GT(f.details.at("bytes_per_s"), 0);
}

TEST_F(Network, every_node_gets_a_figure) {
  const auto f = find("mpi");
  if (world.size() == 1) return;
  ASSERT_EQ(f.details.at("nodes").size(), static_cast<std::size_t>(world.size()));
  for (const auto& n : f.details.at("nodes")) EXPECT_GT(n.at("bytes_per_s"), 0);
}

TEST_F(Network, a_slow_node_is_named) {
  if (last()) request.rehearsal.delay = 100ms;
  request.limits.slow = 0.2;
  const auto f = find("mpi");
  if (world.size() < 3) {  // of two nobody knows which
    EXPECT_EQ(f.result, Result::pass) << all_of(f);
    return;
  }
  EXPECT_EQ(f.result, Result::warn) << all_of(f);
  EXPECT_EQ(f.hosts, std::vector<std::string>{last_host()}) << all_of(f);
  EXPECT_TELLS(f, last_host() + ": slow: ");
}

TEST_F(Network, less_than_was_asked_for_is_a_failure) {
  if (last()) request.rehearsal.delay = 100ms;
  request.limits.min_bandwidth = 4e6;  // 64 KiB in 100 ms is less, without a delay it is far more
  const auto f = find("mpi");
  EXPECT_EQ(f.result, world.size() == 1 ? Result::pass : Result::fail) << all_of(f);
  if (world.size() > 2) {
    EXPECT_EQ(f.hosts, std::vector<std::string>{last_host()}) << all_of(f);
  }
}

TEST_F(Network, a_wrong_sum_is_found_and_its_node_named) {
  if (last()) request.rehearsal.spoil = [](std::span<std::int64_t> values) { values[77] ^= 1 << 20; };
  const auto f = find("mpi");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_EQ(f.hosts, world.size() == 1 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
  EXPECT_TELLS(f, last_host() + ": sum over all ranks: value 77 of 8192");
  if (world.size() > 1) {
    EXPECT_TELLS(f, last_host() + ": sum with node0 alone: value 77");
  }
}

/// MPI's sums behind the name of NCCL.
struct Stand : preflight::Network {
  explicit Stand(const comm::Comm& c, bool breaks) : comm(c), fails(breaks) {}
  double sum(std::span<std::int64_t> values) override {
    comm.sum(values);
    if (fails) throw base::PeerError("NCCL all-reduce: unhandled cuda error");
    return 1e-3;
  }
  comm::Comm comm;
  bool fails;
};

TEST_F(Network, nccl_needs_a_build_and_a_gpu_for_every_rank) {
  EXPECT_TELLS(find("nccl"), "this build has no NCCL");
  request.gpu_network = [](const comm::Comm& c) { return std::make_unique<Stand>(c, false); };
  EXPECT_TELLS(find("nccl"), "not every rank has a GPU");
  const test::FakeGpus fake(test::sound_gpus(1));
  EXPECT_GT(find("nccl").details.at("bytes_per_s"), 0);
  request.gpu_network = [](const comm::Comm&) -> std::unique_ptr<preflight::Network> { return nullptr; };
  EXPECT_TELLS(find("nccl"), "share a GPU");
}

TEST_F(Network, nccl_that_cannot_start_is_a_failure) {
  const test::FakeGpus fake(test::sound_gpus(1));
  request.gpu_network = [](const comm::Comm&) -> std::unique_ptr<preflight::Network> {
    throw base::PeerError("NCCL starting: no socket");
  };
  const auto f = find("nccl");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_EQ(f.seen.size(), 1U) << all_of(f);  // told once for all, and pairs are not tried
  EXPECT_TELLS(f, "sum over all ranks: NCCL starting: no socket");
  EXPECT_TRUE(f.details.at("bytes_per_s").is_null());
}

TEST_F(Network, nccl_that_fails_on_one_rank_ends_on_all) {
  const test::FakeGpus fake(test::sound_gpus(1));
  request.gpu_network = [breaks = last()](const comm::Comm& c) { return std::make_unique<Stand>(c, breaks); };
  const auto f = find("nccl");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_TELLS(f, last_host() + ": sum over all ranks: NCCL all-reduce: unhandled cuda error");
}
}  // namespace
