// SPDX-License-Identifier: Apache-2.0
#include "recover_assess.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/io/store.hpp>
#include <aerie/report/utc.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "leftovers.hpp"
#include "slurm_nodes.hpp"
#include "slurm_queue.hpp"

namespace aerie::apps {
namespace {
using base::Json;
using report::AttemptRecord;

std::set<std::string> hosts_of(const AttemptRecord& a) {
  std::set<std::string> out{a.host};
  if (a.begin_details.is_object())
    for (const auto& h : a.begin_details.value("hosts", Json::array()))
      if (h.is_string()) out.insert(h.get<std::string>());
  out.erase("");
  return out;
}

/// What has become of a host since the attempt began; empty when there is nothing to say.
std::string fate(const AttemptRecord& a, const std::string& host, const std::map<std::string, NodeNow>& nodes,
                 const base::ProcessIdentity& here) {
  if (host == here.host) {
    const Json boots = a.begin_details.is_object() ? a.begin_details.value("boot_ids", Json::object()) : Json::object();
    return boots.value(host, a.boot_id) == here.boot_id ? "" : host + " (this host) was started again since";
  }
  const auto it = nodes.find(host);
  if (it == nodes.end()) return {};
  const auto began = report::parse_utc(a.begin);
  if (began && it->second.boot_unix && *it->second.boot_unix > *began) return host + " was started again since";
  return it->second.state.starts_with("DOWN") || it->second.state.find('*') != std::string::npos
             ? fmt::format("{} is {}", host, it->second.state)
             : "";
}

/// Attempts that recorded no end, newest last, with what has become of their hosts.
void add_deaths(Assessment& a, const base::ProcessIdentity& here) {
  std::set<std::string> hosts;
  for (const auto& t : a.state.attempts)
    if (t.end.empty()) hosts.merge(hosts_of(t));
  hosts.erase(here.host);
  const auto nodes = ask_about_nodes(hosts);
  Json list = Json::array();
  for (const auto& t : a.state.attempts) {
    if (!t.end.empty()) continue;
    const auto why = a.over.find(t.number);
    std::string text =
        fmt::format("attempt {} of {}, begun {}{}: no end is recorded; {}", t.number, t.program, t.begin,
                    t.job.empty() ? "" : ", job " + t.job, why == a.over.end() ? "it may still be at work" : why->second);
    Json fates = Json::array();
    for (const auto& h : hosts_of(t))
      if (const auto f = fate(t, h, nodes, here); !f.empty()) fates.push_back(f), text += "; " + f;
    list.push_back(
        {{"attempt", t.number}, {"program", t.program}, {"over", why == a.over.end() ? "" : why->second}, {"hosts", fates}});
    a.said.push_back(std::move(text));
  }
  a.evidence["without_end"] = std::move(list);
}

void add_node(Assessment& a, const base::ProcessIdentity& here) {
  a.gpus = node::look_at_gpus();
  a.evidence["host"] = here.host;
  a.evidence["boot_id"] = here.boot_id;
  std::map<std::string, int> kinds;
  for (const auto& g : a.gpus.gpus) ++kinds[g.name];
  std::string text;
  for (const auto& [name, n] : kinds) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", n, name);
  a.evidence["gpus"] = text;
  a.said.push_back(fmt::format("{}: {}", here.host,
                               !text.empty() ? fmt::format("{}, driver {}", text, a.gpus.driver)
                               : a.gpus.nvml ? "no GPUs"
                                             : "no GPUs (" + a.gpus.why_not + ")"));
}

void add_data(Assessment& a, const config::Config& c) {
  const bool there = io::Store::exists(c.store_dir());
  std::optional<io::Counts> counts;
  if (const auto error = base::capture([&] {
        if (there) counts = io::Store::open(c.store_dir()).counts();
      })) {
    a.said.push_back(fmt::format("store: cannot be opened as a whole: {}", error->what()));
    a.evidence["store"] = {{"error", error->what()}};
  } else if (there) {
    const auto& n = *counts;
    a.said.push_back(fmt::format("store: {} of {} samples done, {} failed, {} missing, as its records say", n.done, n.total,
                                 n.failed, n.pending));
    a.evidence["store"] = {{"total", n.total}, {"done", n.done}, {"failed", n.failed}, {"missing", n.pending}};
  } else {
    a.said.push_back("store: none yet");
  }
  if (const auto error = base::capture([&] {
        if (const auto newest = ckpt::latest(c.checkpoint_dir(), false)) a.checkpoint = newest->step;
      }))
    a.said.push_back(fmt::format("checkpoints: {}", error->what()));
  if (a.checkpoint) {
    a.said.push_back(fmt::format("checkpoint: step {}", *a.checkpoint));
    a.evidence["checkpoint_step"] = *a.checkpoint;
  }
  if (!std::filesystem::exists(c.run_dir / "ledger.jsonl") && (there || a.checkpoint)) {
    a.said.emplace_back("ledger: it is gone; what attempts there were, and what was decided, is not known");
    a.evidence["ledger"] = "gone";
  }
}
}  // namespace

Assessment assess(const config::Config& config) {
  Assessment a;
  const auto here = base::this_process();
  a.state = report::replay(report::Ledger(config.run_dir).read());
  a.over = attempts_over(a.state, jobs_in_queue(a.state), here);
  add_node(a, here);
  add_deaths(a, here);
  add_data(a, config);
  return a;
}

}  // namespace aerie::apps
