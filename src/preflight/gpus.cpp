// SPDX-License-Identifier: Apache-2.0
// Are the GPUs there, as many as asked for and of one kind; one driver; and does anybody else hold their memory?
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include <aerie/base/log.hpp>

#include "gpu_words.hpp"

namespace aerie::preflight {
namespace {

/// The variable with which Slurm says that the job has GPUs, or nothing.
std::string slurm_gpus() {
  for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"})
    if (const char* value = std::getenv(name); value && *value) return fmt::format("{}={}", name, value);
  return {};
}

base::Json gpu_json(const node::Gpu& g) {
  const auto number = [](const std::optional<std::int64_t>& n) { return n ? base::Json(*n) : base::Json(); };
  return {{"index", g.index},
          {"name", g.name},
          {"uuid", g.uuid},
          {"pci", g.pci_bus_id},
          {"lost", g.lost},
          {"memory_total_bytes", number(g.memory_total)},
          {"memory_used_bytes", number(g.memory_used)}};
}

/// "NVIDIA H200 140 GiB": equal texts are GPUs of one kind.
std::string kind(const node::Gpu& g) {
  return fmt::format("{}{}", g.name.empty() ? "GPU of unknown name" : g.name,
                     g.memory_total ? " " + base::format_bytes(static_cast<double>(*g.memory_total)) : "");
}

/// The GPUs that the ranks of this host may use, each once: every rank may have been given its own. On every rank the list of all
/// hosts, by first rank.
base::Json inventory(const Scene& s) {
  base::Json mine = {{"driver", s.gpus.driver}, {"gpus", base::Json::array()}};
  for (const auto& g : s.gpus.visible()) {
    auto one = gpu_json(g);
    one["kind"] = kind(g);
    mine["gpus"].push_back(one);
  }
  // By what they are, not by number: where the job's devices are fenced off for each rank all of them are number 0.
  const auto same = [](const base::Json& a, const base::Json& b) {
    const auto* key = a.at("uuid") == "" ? "index" : "uuid";
    return a.at(key) == b.at(key);
  };
  std::map<std::string, base::Json> by_host;
  const auto all = s.world.all_gather(mine.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto theirs = base::Json::parse(all[r]);
    auto& node =
        by_host
            .try_emplace(s.hosts[r],
                         base::Json{{"host", s.hosts[r]}, {"driver", theirs.at("driver")}, {"gpus", base::Json::array()}})
            .first->second;
    for (const auto& g : theirs.at("gpus"))
      if (std::none_of(node["gpus"].begin(), node["gpus"].end(), [&](const auto& o) { return same(o, g); }))
        node["gpus"].push_back(g);
  }
  base::Json out = base::Json::array();
  for (const auto& host : s.nodes()) out.push_back(by_host.at(host));
  return out;
}
/// The command that frees the memory, or where to look for one.
std::string how_to_free(const Scene& s, const Holder& h) {
  if (h.of_this_run) return s.request.recover_command;
  return h.known ? h.stop : "nvidia-smi on the node itself shows whose it is";
}
std::string what_to_do(const Scene& s, const Holder& h) {
  if (h.of_this_run) return fmt::format("; a dead attempt of this run left it: `{}` ends it", s.request.recover_command);
  return h.stop.empty() ? std::string() : fmt::format("; to stop it: {}", h.stop);
}
}  // namespace

Finding gpus(const Scene& s) {
  const auto nodes = inventory(s);
  const auto count = usual(s, fmt::format("{}", s.gpus.visible().size()));  // collective over world
  const auto kinds = usual(s, s.gpus.visible().empty() || s.gpus.visible()[0].lost ? "" : kind(s.gpus.visible()[0]));
  const auto self = std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.at("host") == s.host(); });
  const auto expected = s.request.gpus;
  const auto here = static_cast<std::int64_t>(self->at("gpus").size());
  const std::string given = slurm_gpus();
  Troubles mine;
  bool odd = false;  // unlike the others, who may be wrong themselves
  const auto fail = [&](std::string text, std::string advice) {
    mine.push_back({Result::fail, std::move(text), std::move(advice)});
  };
  if (!s.gpus.nvml && expected > 0)
    fail("no GPUs: " + s.gpus.why_not, "nvidia-smi on that node says more; the driver may not be loaded");
  else if (!s.gpus.nvml && !given.empty())
    mine.push_back({Result::warn, fmt::format("{}, but there is no driver to ask: {}", given, s.gpus.why_not),
                    "nvidia-smi on that node says more"});
  else if (expected > 0 && here != expected)
    fail(fmt::format("{} GPUs, but {} were asked for", here, expected),
         "nvidia-smi -L shows those that the driver sees; one may have failed");
  else if ((odd = expected == 0 && count.value != fmt::format("{}", here)))
    fail(fmt::format("{} GPUs, {} has {}", here, count.host, count.value),
         "every node must have as many; nvidia-smi -L shows those that the driver sees");
  if (!s.gpus.note.empty())
    fail(fmt::format("CUDA_VISIBLE_DEVICES names {}, which is not there", s.gpus.note),
         "slices (MIG) are not supported; else a GPU has failed");
  for (const auto& g : s.gpus.visible()) {
    if (g.lost)
      fail(fmt::format("{} is lost: {}", gpu_name(g), g.faults.front().text),
           "reboot the node, or reset the GPU; dmesg shows its Xid");
    else if (!g.faults.empty())
      mine.push_back({Result::warn,
                      fmt::format("{} does not answer {}: {}", gpu_name(g), g.faults.front().query, g.faults.front().text),
                      "nvidia-smi -q on that node says more"});
  }
  // Kinds are compared with that of most nodes, among GPUs that have a name to compare.
  auto reference = kinds.value;
  for (const auto& n : nodes)
    for (const auto& g : n.at("gpus"))
      if (reference.empty() && !g.at("lost").get<bool>()) reference = g.at("kind");
  for (const auto& g : s.gpus.visible())
    if (!g.lost && kind(g) != reference)
      odd = true, fail(fmt::format("{} is a {}, others are {}", gpu_name(g), kind(g), reference),
                       "ask for nodes of one kind (--constraint, --gres=gpu:KIND:N)");
  const auto good =
      here == 0 ? fmt::format("none{}", s.gpus.nvml ? "" : ", and no driver")
                : fmt::format("{} x {} on each node", here, kind(s.gpus.visible().empty() ? node::Gpu{} : s.gpus.visible()[0]));
  auto f = judge(s, "gpus", mine, good);
  const bool any_odd = s.world.max(std::int64_t{odd}) > 0;
  if (any_odd && ((expected == 0 && !count.clear) || !kinds.clear)) f.hosts.clear();
  f.details = {{"nodes", nodes}, {"expected", expected}};
  return f;
}

Finding driver(const Scene& s) {
  const auto here = s.gpus.nvml ? s.gpus.driver : std::string("none");
  const auto most = usual(s, here);
  Troubles mine;
  if (here != most.value)
    mine.push_back({Result::fail, fmt::format("driver {}, {} has {}", here, most.host, most.value),
                    "nodes of one job need one driver: ask the administrators"});
  auto f = judge(s, "driver", mine, most.value);
  if (!most.clear) f.hosts.clear();
  f.details = {{"nodes", gather_nodes(s, {{"driver", s.gpus.driver}, {"nvml", s.gpus.nvml_version}})}};
  return f;
}

Finding gpu_memory(const Scene& s) {
  Troubles mine;
  base::Json list = base::Json::array();
  for (const auto& h : holders(s, s.gpus)) {
    // A display's little is no competitor; whoever computes is, however little it holds now.
    const bool display = h.process.graphics && h.process.bytes >= 0 && h.process.bytes < s.request.limits.idle_gpu_bytes;
    mine.push_back({display ? Result::warn : Result::fail, describe(h) + what_to_do(s, h), how_to_free(s, h)});
    list.push_back(to_json(h));
  }
  for (const auto& g : s.gpus.visible())
    if (const auto left = unexplained_bytes(g); left > s.request.limits.idle_gpu_bytes)
      mine.push_back(
          {Result::fail,
           fmt::format("{} of {} are in use, and no process that the driver shows holds them",
                       base::format_bytes(static_cast<double>(left)), gpu_name(g)),
           "a container may hide it, or the driver kept the memory of a dead process: reset the GPU or reboot the node"});
  std::int64_t used = 0;
  for (const auto& g : s.gpus.visible()) used += g.memory_used.value_or(0);
  const auto good = s.gpus.visible().empty()
                        ? std::string("no GPUs")
                        : fmt::format("nobody holds any ({} in use on a node)", base::format_bytes(static_cast<double>(used)));
  auto f = judge(s, "gpu-memory", mine, good);
  f.details = {{"nodes", gather_nodes(s, {{"used_bytes", used}, {"processes", list}})}};
  return f;
}

}  // namespace aerie::preflight
