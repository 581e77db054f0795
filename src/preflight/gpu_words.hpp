// SPDX-License-Identifier: Apache-2.0
// GPUs and the processes on them, for people and for programs.
#pragma once
#include "scene.hpp"

namespace aerie::preflight {

/// "GPU 3 (0000:5e:00)"
std::string gpu_name(const node::Gpu& gpu);

/// A process that holds GPU memory, as it is recorded.
struct Holder {
  node::Gpu gpu;  // without its list of processes
  node::GpuProcess process;
  std::string user, command, unit, container, job, stop;  // empty: not visible from here
  bool of_this_run = false;                               // an aerie program on this run directory
  bool known = false;                                     // /proc shows it
};
/// Those on the GPUs that this rank may use, without this program's own ranks.
std::vector<Holder> holders(const Scene& scene, const node::GpuView& view);

/// "4711 vllm serve model (user root, vllm.service) holds 120 GiB of GPU 3 (0000:5e:00)"
std::string describe(const Holder& holder);
/// The same as an object.
base::Json to_json(const Holder& holder);

/// Memory in use on `gpu` that none of its processes accounts for; 0 when some process's share is not told.
std::int64_t unexplained_bytes(const node::Gpu& gpu);

}  // namespace aerie::preflight
