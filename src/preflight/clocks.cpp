// SPDX-License-Identifier: Apache-2.0
// Do the nodes agree on the time? File times, the job's end and the ledger's lines depend on it.
#include "scene.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <aerie/base/host.hpp>

namespace aerie::preflight {
namespace {
constexpr int trips = 8, tag = 77;

double now(const Scene& s) { return base::unix_now() + s.request.rehearsal.clock_offset_s; }

struct Offset {
  double seconds = 0, uncertainty = 0;
};
/// How far `peer` is ahead of rank 0: its answer against the middle of the trip, of the quickest trip. On rank 0.
Offset measure(const Scene& s, int peer) {
  Offset best{0, 1e9};
  for (int i = 0; i < trips; ++i) {
    double there = 0;
    const double sent = now(s);
    comm::check(MPI_Send(nullptr, 0, MPI_BYTE, peer, tag, s.world.get()));
    comm::check(MPI_Recv(&there, 1, MPI_DOUBLE, peer, tag, s.world.get(), MPI_STATUS_IGNORE));
    const double back = now(s), half = (back - sent) / 2;
    if (half < best.uncertainty) best = {there - (sent + half), half};
  }
  return best;
}
void answer(const Scene& s) {
  for (int i = 0; i < trips; ++i) {
    comm::check(MPI_Recv(nullptr, 0, MPI_BYTE, 0, tag, s.world.get(), MPI_STATUS_IGNORE));
    const double here = now(s);
    comm::check(MPI_Send(&here, 1, MPI_DOUBLE, 0, tag, s.world.get()));
  }
}
}  // namespace

Finding clocks(const Scene& s) {
  // Rank 0 asks one node after the other; each node's first rank answers.
  Offset mine;
  const auto first = s.world.all_gather(std::int64_t{s.first_of_host() ? 1 : 0});
  for (int r = 1; r < s.world.size(); ++r) {
    if (!first[static_cast<std::size_t>(r)]) continue;
    if (s.world.is_root()) {
      auto o = measure(s, r);
      comm::check(MPI_Send(&o, 2, MPI_DOUBLE, r, tag, s.world.get()));
    } else if (s.world.rank() == r) {
      answer(s);
      comm::check(MPI_Recv(&mine, 2, MPI_DOUBLE, 0, tag, s.world.get(), MPI_STATUS_IGNORE));
    }
  }
  const auto nodes = gather_nodes(s, {{"offset_s", mine.seconds}, {"uncertainty_s", mine.uncertainty}});
  std::vector<double> offsets;
  double doubt = 0;
  for (const auto& n : nodes) {
    offsets.push_back(n.at("offset_s"));
    doubt = std::max(doubt, n.at("uncertainty_s").get<double>());
  }
  std::sort(offsets.begin(), offsets.end());
  const auto n = offsets.size();
  const double apart = offsets.back() - offsets.front(), bound = s.request.limits.clock_s;
  // Named are those far from the middle, not those far from rank 0, whose own clock may be the wrong one. Of two nodes both are.
  const double middle = (offsets[(n - 1) / 2] + offsets[n / 2]) / 2, off = mine.seconds - middle;
  Troubles found;
  if (s.first_of_host() && apart - doubt > bound && std::abs(off) >= 0.49 * apart)
    found.push_back({Result::fail,
                     fmt::format("its clock is {:.3f} s {} the middle of the nodes', which may be {:.3f} s apart", std::abs(off),
                                 off > 0 ? "ahead of" : "behind", bound),
                     "set the clock (chronyc tracking shows why it drifts)"});
  auto f =
      judge(s, "clock", found,
            nodes.size() == 1 ? "one node: nothing to compare" : fmt::format("the nodes' clocks are within {:.3f} s", apart));
  f.details = {{"nodes", nodes}, {"bound_s", bound}};
  return f;
}

}  // namespace aerie::preflight
