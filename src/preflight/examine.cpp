// SPDX-License-Identifier: Apache-2.0
// The order of the checks: what others need comes first, what takes time last.
#include <algorithm>
#include <string>

#include <aerie/base/fault.hpp>

#include "scene.hpp"

namespace aerie::preflight {

namespace {
struct Check {
  std::string_view name;
  Finding (*run)(const Scene&);
};
constexpr Check checks[] = {{"layout", layout},
                            {"time", time_left},
                            {"version", version},
                            {"libraries", libraries},
                            {"clock", clocks},
                            {"directory", directory},
                            {"locks", locks},
                            {"space", space},
                            {"host-memory", host_memory},
                            {"pinned-memory", pinned_memory},
                            {"scratch", scratch},
                            {"gpus", gpus},
                            {"driver", driver},
                            {"gpu-memory", gpu_memory},
                            {"gpu-errors", gpu_errors},
                            {"gpu-clocks", gpu_clocks},
                            {"gpu-log", gpu_log},
                            {"mpi", network_mpi},
                            {"nccl", network_nccl}};
}  // namespace

std::vector<Finding> examine(const comm::Comm& world, const Request& request, const std::function<void(std::string_view)>& poll) {
  const auto s = make_scene(world, request);  // collective over world
  std::vector<Finding> out;
  const auto failed = [&](std::string_view name) {
    return std::any_of(out.begin(), out.end(), [&](const Finding& f) { return f.result == Result::fail && f.check == name; });
  };
  for (const auto& check : checks) {
    if (!request.only.empty() && !request.only.contains(std::string(check.name))) continue;
    if (check.name == "locks" && failed("directory")) continue;  // they would only repeat it
    poll(check.name);
    base::fault_point(("preflight." + std::string(check.name)).c_str());
    out.push_back(check.run(s));  // collective over world
    if (failed("layout")) break;  // among the wrong nodes nothing can be compared
  }
  return out;
}

Result worst(const std::vector<Finding>& findings) {
  Result out = Result::pass;
  for (const auto& f : findings) out = std::max(out, f.result);
  return out;
}

}  // namespace aerie::preflight
