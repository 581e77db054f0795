// SPDX-License-Identifier: Apache-2.0
#include "gpu_words.hpp"

#include <filesystem>

#include <fmt/format.h>

#include <aerie/base/log.hpp>
#include <aerie/node/process.hpp>

namespace aerie::preflight {
namespace {
/// A command line of people's length.
std::string shortened(const std::string& text, std::size_t most = 90) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}
}  // namespace

std::string gpu_name(const node::Gpu& gpu) {
  return fmt::format("GPU {}{}", gpu.index, gpu.pci_bus_id.empty() ? "" : " (" + gpu.pci_bus_id + ")");
}

std::vector<Holder> holders(const Scene& s, const node::GpuView& view) {
  std::error_code none;
  const auto run = std::filesystem::canonical(s.request.run, none).string();
  std::vector<Holder> out;
  for (const auto& gpu : view.visible())
    for (const auto& p : gpu.processes) {
      if (s.own.contains(p.pid)) continue;
      Holder h;
      h.gpu = gpu, h.process = p;
      h.gpu.processes.clear();
      if (const auto seen = node::look_at(p.pid); seen && node::sees_pids_of_the_driver()) {
        h.known = true;
        h.user = seen->user, h.command = seen->command, h.unit = seen->unit, h.container = seen->container, h.job = seen->job;
        h.stop = node::how_to_stop(*seen);
        h.of_this_run = !run.empty() && node::run_directory_of(*seen) == run;
      }
      out.push_back(std::move(h));
    }
  return out;
}

std::string describe(const Holder& h) {
  const auto what = h.process.bytes < 0 ? std::string("memory") : base::format_bytes(static_cast<double>(h.process.bytes));
  if (!h.known)
    return fmt::format("pid {} holds {} of {}; /proc does not show it: it runs in another container", h.process.pid, what,
                       gpu_name(h.gpu));
  std::string of = "user " + h.user;
  for (const auto* more : {&h.unit, &h.container})
    if (!more->empty()) of += ", " + *more;
  if (!h.job.empty()) of += ", job " + h.job;
  return fmt::format("pid {} {} ({}) holds {} of {}", h.process.pid, shortened(h.command), of, what, gpu_name(h.gpu));
}

base::Json to_json(const Holder& h) {
  return {{"gpu", h.gpu.index},
          {"pci", h.gpu.pci_bus_id},
          {"pid", h.process.pid},
          {"bytes", h.process.bytes < 0 ? base::Json() : base::Json(h.process.bytes)},
          {"graphics", h.process.graphics},
          {"user", h.user},
          {"command", h.command},
          {"unit", h.unit},
          {"container", h.container},
          {"job", h.job},
          {"stop", h.stop},
          {"of_this_run", h.of_this_run}};
}

std::int64_t unexplained_bytes(const node::Gpu& gpu) {
  auto left = gpu.memory_used.value_or(0);
  for (const auto& p : gpu.processes) {
    if (p.bytes < 0) return 0;
    left -= p.bytes;
  }
  return std::max(left, std::int64_t{0});
}

}  // namespace aerie::preflight
