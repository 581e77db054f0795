// SPDX-License-Identifier: Apache-2.0
// What the checks share: who the ranks are, what each node showed, and how the ranks' troubles become one finding.
#pragma once
#include <set>

#include <aerie/node/gpu.hpp>
#include <aerie/preflight/preflight.hpp>

namespace aerie::preflight {

struct Scene {
  const comm::Comm& world;
  const Request& request;
  std::vector<std::string> hosts;  // by rank
  std::string nonce;               // of this examination
  node::GpuView gpus;              // of this rank's host, before this program touches one
  std::set<std::int64_t> own;      // pids of this program on this rank's host

  const std::string& host() const { return hosts[static_cast<std::size_t>(world.rank())]; }
  bool first_of_host() const;              // speaks for its host
  std::vector<std::string> nodes() const;  // hosts, each once, by their first rank
};
/// Collective over `world`.
Scene make_scene(const comm::Comm& world, const Request& request);

/// Something that this rank found wrong.
struct Trouble {
  Result result = Result::fail;
  std::string text, advice;
};
using Troubles = std::vector<Trouble>;

/// The error's text, or nothing.
std::string error_text(const std::function<void()>& f);
/// One FAIL with the error's text, or none.
Troubles trouble(const std::function<void()>& f, const std::string& advice);

/// Collective: the ranks' troubles, those that are alike told once; `good` (rank 0's) when there are none.
Finding judge(const Scene& scene, std::string check, const Troubles& mine, const std::string& good);

/// What most hosts have. The odd one is at fault, whichever rank it has; where none is the most frequent, no host can be blamed.
struct Usual {
  std::string value;
  std::string host;  // one that has it: rank 0's, where it does
  bool clear = true;
};
/// Collective; `mine` of a host's first rank counts.
Usual usual(const Scene& scene, const std::string& mine);

/// Collective: what each host's first rank brings, as a list of objects with "host" added.
base::Json gather_nodes(const Scene& scene, const base::Json& mine);

// The checks. All are collective over the scene's world.
Finding layout(const Scene&);
Finding time_left(const Scene&);
Finding version(const Scene&);
Finding libraries(const Scene&);
Finding clocks(const Scene&);
Finding directory(const Scene&);
Finding locks(const Scene&);
Finding space(const Scene&);
Finding host_memory(const Scene&);
Finding pinned_memory(const Scene&);
Finding scratch(const Scene&);
Finding gpus(const Scene&);
Finding driver(const Scene&);
Finding gpu_memory(const Scene&);
Finding gpu_errors(const Scene&);
Finding gpu_clocks(const Scene&);
Finding gpu_log(const Scene&);
Finding network_mpi(const Scene&);
Finding network_nccl(const Scene&);

}  // namespace aerie::preflight
