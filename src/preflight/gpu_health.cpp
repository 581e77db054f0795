// SPDX-License-Identifier: Apache-2.0
// Is the hardware sound: memory errors, clocks that are held down, heat, and what the kernel log says of GPUs since the boot.
#include <algorithm>

#include <fmt/format.h>

#include <aerie/base/log.hpp>

#include "gpu_words.hpp"
#include "kernel_log.hpp"

namespace aerie::preflight {
namespace {
template <class T>
base::Json told(const std::optional<T>& value) {
  return value ? base::Json(*value) : base::Json();
}
}  // namespace

/// What counts is what NVIDIA's guide to memory errors asks for: a reset after an uncorrectable error, replacement when no spare
/// row is left. Corrected errors are no trouble.
Finding gpu_errors(const Scene& s) {
  constexpr auto* reset = "drain the node and reset the GPU (nvidia-smi --gpu-reset), or reboot";
  Troubles mine;
  base::Json list = base::Json::array();
  for (const auto& g : s.gpus.visible()) {
    const auto name = gpu_name(g);
    if (g.remap && g.remap->failed)
      mine.push_back({Result::fail, name + " has no spare row left for a memory error", "the GPU must be replaced"});
    if (g.ecc_uncorrected.value_or(0) > 0)
      mine.push_back(
          {Result::fail, fmt::format("{} had {} memory errors that could not be corrected", name, *g.ecc_uncorrected), reset});
    if (g.remap && g.remap->pending) mine.push_back({Result::warn, name + " waits for a reset to replace a memory row", reset});
    if (g.retirement_pending.value_or(false))
      mine.push_back({Result::warn, name + " waits for a reset to retire a memory page", reset});
    if (g.ecc && !*g.ecc)
      mine.push_back(
          {Result::warn, name + " works with ECC switched off: memory errors go unnoticed", "nvidia-smi -e 1, then reboot"});
    base::Json one = {{"gpu", g.index},
                      {"pci", g.pci_bus_id},
                      {"ecc", told(g.ecc)},
                      {"corrected", told(g.ecc_corrected)},
                      {"uncorrected", told(g.ecc_uncorrected)},
                      {"uncorrected_ever", told(g.ecc_uncorrected_ever)},
                      {"retirement_pending", told(g.retirement_pending)},
                      {"remap", nullptr}};
    if (g.remap)
      one["remap"] = {{"corrected", g.remap->corrected},
                      {"uncorrected", g.remap->uncorrected},
                      {"pending", g.remap->pending},
                      {"failed", g.remap->failed}};
    list.push_back(std::move(one));
  }
  auto f = judge(s, "gpu-errors", mine, list.empty() ? "no GPUs" : "no memory errors that matter");
  f.details = {{"nodes", gather_nodes(s, {{"gpus", list}})}};
  return f;
}

/// Idle GPUs clock down by themselves, so the clock is told and not judged; reasons that mean trouble are.
Finding gpu_clocks(const Scene& s) {
  constexpr int margin_c = 5;
  Troubles mine;
  base::Json list = base::Json::array();
  int hottest = 0;
  for (const auto& g : s.gpus.visible()) {
    for (const auto& reason : node::throttle_reasons(g.throttle.value_or(0)))
      mine.push_back({Result::warn, fmt::format("{}: {}", gpu_name(g), reason),
                      "look at the node's fans, inlet temperature and power supplies"});
    if (g.temperature_c && g.slowdown_c && *g.slowdown_c > 0 && *g.temperature_c >= *g.slowdown_c - margin_c)
      mine.push_back({Result::warn,
                      fmt::format("{} has {} C, and slows down at {} C", gpu_name(g), *g.temperature_c, *g.slowdown_c),
                      "look at the node's fans and inlet temperature"});
    hottest = std::max(hottest, g.temperature_c.value_or(0));
    list.push_back({{"gpu", g.index},
                    {"pci", g.pci_bus_id},
                    {"temperature_c", told(g.temperature_c)},
                    {"slowdown_c", told(g.slowdown_c)},
                    {"sm_clock_mhz", told(g.sm_clock_mhz)},
                    {"sm_clock_max_mhz", told(g.sm_clock_max_mhz)},
                    {"throttle", told(g.throttle)}});
  }
  auto f = judge(s, "gpu-clocks", mine, list.empty() ? "no GPUs" : fmt::format("nothing holds them down, {} C at most", hottest));
  f.details = {{"nodes", gather_nodes(s, {{"gpus", list}})}};
  return f;
}

Finding gpu_log(const Scene& s) {
  const auto log = read_xids(s.request.rehearsal.kernel_log);
  const auto others = [&](const Xid& x) {  // of a GPU that belongs to another job of this node
    return std::any_of(s.gpus.gpus.begin(), s.gpus.gpus.end(),
                       [&](const node::Gpu& g) { return !g.visible && g.pci_bus_id == x.pci_bus_id; });
  };
  Troubles mine;
  base::Json list = base::Json::array();
  // The newest of each kind and GPU; a fault may repeat itself by the thousand.
  std::map<std::pair<std::string, int>, std::pair<Xid, int>> newest;
  for (const auto& x : log.xids) {
    if (others(x)) continue;
    auto& [last, count] = newest.try_emplace({x.pci_bus_id, x.number}, std::pair{x, 0}).first->second;
    last = x, ++count;
  }
  for (const auto& [key, value] : newest) {
    const auto& [x, count] = value;
    list.push_back({{"pci", x.pci_bus_id}, {"xid", x.number}, {"count", count}, {"age_s", x.age_s}, {"text", x.text}});
    const auto serious = seriousness(x.number);
    if (serious == Seriousness::program) continue;  // a program's own mistake
    const bool fail = serious == Seriousness::reset && x.age_s < s.request.limits.log_hours * 3600;
    mine.push_back({fail ? Result::fail : Result::warn,
                    fmt::format("GPU {}: Xid {}{}, {} ago: {}", x.pci_bus_id, x.number,
                                count > 1 ? fmt::format(" ({} times)", count) : "", base::format_duration(x.age_s), x.text),
                    serious == Seriousness::reset ? "drain the node and reset the GPU, or reboot; the line stays until then"
                                                  : "NVIDIA's list of Xid errors says what it means; watch this node"});
  }
  const auto good = s.gpus.visible().empty() && list.empty() ? std::string("no GPUs")
                    : !log.readable                          ? "the kernel log cannot be read here: " + log.why_not
                    : list.empty()                           ? std::string("no Xid errors since the boot")
                                                             : std::string("Xid errors of programs only since the boot");
  auto f = judge(s, "gpu-log", mine, good);
  f.details = {{"nodes", gather_nodes(s, {{"readable", log.readable}, {"xids", list}})}};
  return f;
}

}  // namespace aerie::preflight
