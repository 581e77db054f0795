// SPDX-License-Identifier: Apache-2.0
// Each node's own resources: memory, memory that may be pinned, /tmp and /dev/shm.
#include "scene.hpp"

#include <fmt/format.h>

#include <aerie/base/log.hpp>
#include <aerie/node/resources.hpp>

namespace aerie::preflight {
namespace {
constexpr std::int64_t mib = std::int64_t{1} << 20;

std::string bytes(std::int64_t n) { return base::format_bytes(static_cast<double>(n)); }
base::Json told(const std::optional<std::int64_t>& n) { return !n || *n == node::unlimited ? base::Json() : base::Json(*n); }
node::Resources look(const Scene& s) { return s.request.rehearsal.resources.value_or(node::look_at_resources()); }
}  // namespace

Finding host_memory(const Scene& s) {
  const auto& needs = s.request.needs;
  const auto need = s.world.broadcast(needs.memory_bytes * needs.ranks_per_node), cached = s.world.broadcast(needs.cached_bytes);
  const auto available = look(s).memory_available;
  Troubles mine;
  if (available && *available < need)
    mine.push_back({Result::fail,
                    fmt::format("{} of memory available, but {} needs {} for {} rank{}", bytes(*available), needs.phase,
                                bytes(need), needs.ranks_per_node, needs.ranks_per_node == 1 ? "" : "s"),
                    "ask for more --mem, start fewer ranks on a node, or set target.stream = \"layers\""});
  else if (available && *available < need + cached)
    mine.push_back(
        {Result::warn,
         fmt::format("{} of memory available, but the weights that are read again and again take {}: they come from disk "
                     "each time",
                     bytes(*available), bytes(cached)),
         "ask for more --mem"});
  const auto good = fmt::format("{} available{}", available ? bytes(*available) : "an unknown amount",
                                need > 0 ? fmt::format(", {} needs {}", needs.phase, bytes(need)) : "");
  auto f = judge(s, "host-memory", mine, good);
  f.details = {
      {"nodes", gather_nodes(s, {{"available_bytes", told(available)}})}, {"needed_bytes", need}, {"cached_bytes", cached}};
  return f;
}

/// CUDA and the network's cards pin buffers; some fabrics fail, and say something else, when they may not.
Finding pinned_memory(const Scene& s) {
  const auto limit = look(s).pinned_limit;
  const bool has_gpus = !s.gpus.visible().empty();
  Troubles mine;
  if (has_gpus && limit && *limit < 64 * mib)
    mine.push_back({Result::warn, fmt::format("only {} may be pinned (ulimit -l)", bytes(*limit)),
                    "set memlock to unlimited in limits.conf and in slurmd's unit (LimitMEMLOCK=infinity), "
                    "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"});
  const auto good = !limit ? "not told" : *limit == node::unlimited ? "unlimited" : bytes(*limit) + " may be pinned";
  auto f = judge(s, "pinned-memory", mine, good);
  f.details = {{"nodes", gather_nodes(s, {{"limit_bytes", told(limit)}})}};
  return f;
}

/// MPI keeps its session and the shared memory between a node's ranks there, NCCL its own.
Finding scratch(const Scene& s) {
  const auto r = look(s);
  Troubles mine;
  const auto demand = [&](const char* dir, const std::optional<std::int64_t>& free, std::int64_t least, std::int64_t good) {
    if (!free || *free >= good) return;
    mine.push_back({*free < least ? Result::fail : Result::warn, fmt::format("{} free in {}", bytes(*free), dir),
                    fmt::format("remove what earlier jobs left in {}, or make it larger", dir)});
  };
  demand("/tmp", r.tmp_free, 64 * mib, 1024 * mib);
  demand("/dev/shm", r.shm_free, 16 * mib, 128 * mib);  // a container's default is 64 MiB
  const auto free = [](const std::optional<std::int64_t>& n) { return n ? bytes(*n) : std::string("?"); };
  auto f = judge(s, "scratch", mine, fmt::format("/tmp {} free, /dev/shm {} free", free(r.tmp_free), free(r.shm_free)));
  f.details = {{"nodes", gather_nodes(s, {{"tmp_free_bytes", told(r.tmp_free)}, {"shm_free_bytes", told(r.shm_free)}})}};
  return f;
}

}  // namespace aerie::preflight
