// SPDX-License-Identifier: Apache-2.0
// After a phase: who still holds the GPUs' memory, once the driver has had time to give back what the phase's programs had.
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include <aerie/base/log.hpp>

#include "gpu_words.hpp"

namespace aerie::preflight {
namespace {
/// Everything that is still held, as this rank's host shows it now.
struct Look {
  Troubles troubles;
  base::Json details;
};
Look look(const Scene& s, const node::GpuView& view) {
  Look out;
  base::Json gpus = base::Json::array(), processes = base::Json::array();
  for (const auto& g : view.visible()) {
    gpus.push_back({{"gpu", g.index}, {"used_bytes", g.memory_used ? base::Json(*g.memory_used) : base::Json()}});
    if (const auto left = unexplained_bytes(g); left > s.request.limits.idle_gpu_bytes)
      out.troubles.push_back({Result::warn,
                              fmt::format("{} of {} are still in use, and no process that the driver shows holds them",
                                          base::format_bytes(static_cast<double>(left)), gpu_name(g)),
                              "the driver may have kept a dead process's memory: reset the GPU or reboot the node"});
  }
  for (const auto& h : holders(s, view)) {
    processes.push_back(to_json(h));
    const bool display = h.process.graphics && h.process.bytes >= 0 && h.process.bytes < s.request.limits.idle_gpu_bytes;
    if (display) continue;
    out.troubles.push_back({Result::warn, describe(h) + (h.of_this_run ? "; it belongs to this run" : ""),
                            h.of_this_run ? s.request.recover_command : h.stop});
  }
  out.details = {{"gpus", gpus}, {"processes", processes}};
  return out;
}
}  // namespace

Finding examine_after(const comm::Comm& world, const Request& request, double wait_s, const std::function<void()>& poll) {
  using namespace std::chrono_literals;
  auto s = make_scene(world, request);  // collective over world
  const auto start = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  auto now = look(s, s.gpus);
  // All go on as long as anybody's memory is held; rank 0's clock ends it.
  while (world.max(now.troubles.empty() ? 0 : 1) != 0) {
    if (world.broadcast(std::int64_t{waited() < wait_s ? 1 : 0}) == 0) break;
    poll();
    std::this_thread::sleep_for(250ms);
    s.gpus = node::look_at_gpus();
    now = look(s, s.gpus);
  }
  const bool none = world.max(s.gpus.visible().empty() ? 0 : 1) == 0;
  std::int64_t used = 0;
  for (const auto& g : s.gpus.visible()) used += g.memory_used.value_or(0);
  auto f = judge(s, "gpu-memory", now.troubles,
                 none ? std::string("no GPUs")
                      : fmt::format("free again ({} in use on a node)", base::format_bytes(static_cast<double>(used))));
  f.details = {{"nodes", none ? base::Json::array() : gather_nodes(s, now.details)}, {"waited_s", waited()}};
  return f;
}

}  // namespace aerie::preflight
