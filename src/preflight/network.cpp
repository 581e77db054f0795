// SPDX-License-Identifier: Apache-2.0
// The network: sums over all ranks must be right, and sums of two nodes at a time show which node is slow. Ranks with the same
// place on their node form a column; in each column every node meets others in turn, all pairs at once. A node's figure is the
// best of its meetings, so that a slow partner does not count against it, and the least of its ranks'.
#include "scene.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>

namespace aerie::preflight {
namespace {
using Clock = std::chrono::steady_clock;
constexpr int repeats = 3, most_rounds = 3;

std::string rate(double bytes_per_s) { return base::format_bytes(bytes_per_s) + "/s"; }

class MpiNetwork final : public Network {
 public:
  explicit MpiNetwork(const comm::Comm& comm) : comm_(comm) {}
  double sum(std::span<std::int64_t> values) override {
    const auto start = Clock::now();
    comm_.sum(values);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  comm::Comm comm_;
};

/// One value of one rank: different by rank and place, with a sum over the ranks that is known.
std::int64_t value(std::size_t i, std::int64_t rank) {
  return static_cast<std::int64_t>(i * 2654435761U % 1000003U + 1) * (rank + 1);
}

/// What sums over `group` come to: bytes a second of the fastest of several, and what was wrong with any.
struct Outcome {
  bool tried = true;
  double bytes_per_s = 0;
  std::string wrong;
};
/// One sum of `values`, as slow as the rehearsal asks: a partner waits for a slow card too. Collective over what `network` is
/// for.
double timed_sum(const Scene& s, Network& network, std::span<std::int64_t> values) {
  const auto delay = s.request.rehearsal.delay;
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  const double seconds = network.sum(values);
  if (s.request.rehearsal.spoil) s.request.rehearsal.spoil(values);
  return seconds + std::chrono::duration<double>(delay).count();
}

/// The first value that is not what the ranks' values come to, for people; empty when all are right.
std::string first_wrong(std::span<const std::int64_t> values, std::int64_t ranks) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const auto right = value(i, 0) * (ranks * (ranks + 1) / 2); values[i] != right)
      return fmt::format("value {} of {} came out as {}, not {}", i, values.size(), values[i], right);
  return {};
}

/// Collective over `group`.
Outcome try_sums(const Scene& s, const OpenNetwork& open, const comm::Comm& group) {
  Outcome out;
  std::unique_ptr<Network> network;
  out.wrong = error_text([&] { network = open(group); });  // collective over group; fails on all of it or on none
  out.tried = network || !out.wrong.empty();
  if (!network) return out;
  std::vector<std::int64_t> values(static_cast<std::size_t>(s.request.limits.network_bytes) / sizeof(std::int64_t));
  double fastest = 1e300;
  for (int k = 0; k <= repeats; ++k) {  // the first one only warms up
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i, group.rank());
    group.barrier();  // collective over group
    double seconds = 0;
    const auto failed = error_text([&] { seconds = timed_sum(s, *network, values); });  // collective over group
    if (group.max(failed.empty() ? 0 : 1) != 0) {                                       // collective over group
      out.wrong = failed.empty() ? "another rank of it failed" : failed;
      return out;
    }
    if (out.wrong.empty()) out.wrong = first_wrong(values, group.size());
    if (k > 0) fastest = std::min(fastest, seconds);
  }
  out.bytes_per_s = static_cast<double>(s.request.limits.network_bytes) / std::max(fastest, 1e-9);
  return out;
}

/// Number of nodes, this rank's node, and the ranks with its place on their nodes. Collective over the scene's world.
struct Column {
  int nodes = 0, node = 0;
  comm::Comm ranks;
};
comm::Comm split(const comm::Comm& c, int color, int key) {
  if (c.get() == MPI_COMM_NULL) return c;  // alone, without MPI
  MPI_Comm out = MPI_COMM_NULL;
  comm::check(MPI_Comm_split(c.get(), color, key, &out));
  return comm::Comm::own(out);
}
Column my_column(const Scene& s) {
  const auto nodes = s.nodes();
  const auto node = static_cast<int>(std::find(nodes.begin(), nodes.end(), s.host()) - nodes.begin());
  const auto place = static_cast<int>(std::count(s.hosts.begin(), s.hosts.begin() + s.world.rank(), s.host()));
  return {static_cast<int>(nodes.size()), node, split(s.world, place, node)};
}

/// The partner of `node` in a round of a tournament in which everybody meets everybody once; -1: sits out (odd numbers).
int partner(int nodes, int node, int round) {
  const int n = nodes + nodes % 2, last = n - 1;
  int other = 0;
  if (node == last)
    other = round * (n / 2) % last;  // the one that would meet itself
  else if (other = ((round - node) % last + last) % last; other == node)
    other = last;
  return other < nodes ? other : -1;
}

/// What each node reached.
struct Rates {
  std::map<std::string, double> by_host;
  std::vector<double> sorted;
  double of(const std::string& host) const { return by_host.at(host); }
  double least() const { return sorted.front(); }
  double median() const { return sorted[sorted.size() / 2]; }
};
/// A node is as fast as the slowest of its ranks. Collective over the scene's world; the same on all ranks.
Rates gather_rates(const Scene& s, double mine) {
  const auto all = s.world.all_gather(static_cast<std::int64_t>(mine));
  Rates out;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto one = static_cast<double>(all[r]);
    const auto [at, fresh] = out.by_host.try_emplace(s.hosts[r], one);
    if (!fresh) at->second = std::min(at->second, one);
  }
  for (const auto& [host, one] : out.by_host) out.sorted.push_back(one);
  std::sort(out.sorted.begin(), out.sorted.end());
  return out;
}

/// Collective over the scene's world.
Finding examine_network(const Scene& s, const std::string& check, const OpenNetwork& open) {
  const auto& limits = s.request.limits;
  constexpr auto* look =
      "look at that node's network cards and cables (ibstat, ethtool); NCCL_DEBUG=INFO, or OMPI_MCA_btl_base_verbose=30, shows "
      "what is used";
  Troubles mine;
  const auto all = try_sums(s, open, s.world);  // collective over world
  if (!all.tried) return judge(s, check, {}, "not tried: the ranks of a node share a GPU");
  if (!all.wrong.empty()) mine.push_back({Result::fail, "sum over all ranks: " + all.wrong, look});
  const double world_rate = static_cast<double>(s.world.min(static_cast<std::int64_t>(all.bytes_per_s)));

  // Where the sum of all failed to work at all (not: came out wrong) pairs would only repeat it, slowly.
  const auto column = my_column(s);  // collective over world
  const bool broken = s.world.max(all.bytes_per_s > 0 ? 0 : 1) != 0;
  const int full = column.nodes + column.nodes % 2 - 1, rounds = column.nodes < 2 || broken ? 0 : std::min(full, most_rounds);
  double best = 0;
  Rates rates;
  // A node that looks slow gets two more chances: somebody else's burst is over by then, a broken cable is not.
  for (int chance = 0; chance < 3; ++chance) {
    for (int round = 0; round < rounds; ++round) {
      const int other = partner(column.nodes, column.node, round);
      const auto pair =
          split(column.ranks, other < 0 ? column.node : std::min(column.node, other), column.node);  // collective over the column
      if (other < 0) continue;
      const auto o = try_sums(s, open, pair);  // collective over pair
      const auto there = s.nodes()[static_cast<std::size_t>(other)];
      if (!o.wrong.empty() && chance == 0)
        mine.push_back({Result::fail, fmt::format("sum with {} alone: {}", there, o.wrong), look});
      best = std::max(best, o.bytes_per_s);
    }
    rates = gather_rates(s, best);  // collective over world
    if (rates.least() >= std::max(limits.min_bandwidth, limits.slow * rates.median())) break;
  }
  if (rounds > 0 && rates.of(s.host()) < limits.min_bandwidth)
    mine.push_back(
        {Result::fail,
         fmt::format("{} with other nodes, --min-bandwidth asks for {}", rate(rates.of(s.host())), rate(limits.min_bandwidth)),
         look});
  else if (rounds > 0 && rates.of(s.host()) < limits.slow * rates.median())
    mine.push_back(
        {Result::warn,
         fmt::format("slow: {} with other nodes, the median of all is {}", rate(rates.of(s.host())), rate(rates.median())),
         look});
  base::Json nodes = base::Json::array();
  for (const auto& host : s.nodes())
    nodes.push_back({{"host", host}, {"bytes_per_s", rounds > 0 ? base::Json(rates.of(host)) : base::Json()}});

  const auto good = s.world.size() == 1 ? std::string("one rank: nothing to compare")
                    : column.nodes == 1 ? fmt::format("{} over the ranks of one node: nothing to compare", rate(world_rate))
                                        : fmt::format("{} over all, {} to {} between two nodes", rate(world_rate),
                                                      rate(rates.least()), rate(rates.sorted.back()));
  auto f = judge(s, check, mine, good);
  f.details = {
      {"bytes", limits.network_bytes}, {"bytes_per_s", broken ? base::Json() : base::Json(world_rate)}, {"nodes", nodes}};
  return f;
}
}  // namespace

OpenNetwork mpi_network() {
  return [](const comm::Comm& comm) { return std::make_unique<MpiNetwork>(comm); };
}

Finding network_mpi(const Scene& s) { return examine_network(s, "mpi", mpi_network()); }

Finding network_nccl(const Scene& s) {
  // NCCL needs a GPU for every rank, and refuses two ranks on one.
  const bool have = s.request.gpu_network && !s.gpus.visible().empty();
  if (s.world.min(have ? 1 : 0) == 0)
    return judge(s, "nccl", {}, s.request.gpu_network ? "not every rank has a GPU" : "not tried: this build has no NCCL");
  return examine_network(s, "nccl", s.request.gpu_network);
}

}  // namespace aerie::preflight
