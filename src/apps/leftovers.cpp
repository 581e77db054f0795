// SPDX-License-Identifier: Apache-2.0
#include "leftovers.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/utc.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <sys/stat.h>

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using base::Json;

/// One rank of an attempt, as its begin line has it.
struct Rank {
  std::int64_t rank = 0;
  node::Recorded process;
  std::string host, boot_id;
  bool was_here(const base::ProcessIdentity& here) const { return host == here.host && boot_id == here.boot_id; }
};
node::Recorded first_process(const report::AttemptRecord& a) { return {a.pid, a.start_ticks, a.pid_namespace}; }
std::vector<Rank> ranks_of(const report::AttemptRecord& a) {
  const auto& d = a.begin_details;
  const Json boots = d.is_object() ? d.value("boot_ids", Json::object()) : Json::object();
  std::vector<Rank> out;
  if (d.is_object() && d.contains("processes"))
    for (const auto& p : d.at("processes")) {
      Rank r{
          p.value("rank", std::int64_t{0}),
          {p.value("pid", std::int64_t{0}), p.value("start_ticks", std::int64_t{0}), p.value("pid_namespace", std::int64_t{0})},
          p.value("host", ""),
          {}};
      r.boot_id = boots.value(r.host, r.host == a.host ? a.boot_id : std::string());
      out.push_back(std::move(r));
    }
  if (out.empty()) out.push_back({0, first_process(a), a.host, a.boot_id});  // an older ledger knows the first rank alone
  return out;
}

/// As far as this host can tell.
node::Sight first_rank(const report::AttemptRecord& a, const base::ProcessIdentity& here) {
  if (a.host != here.host) return node::Sight::hidden;
  return a.boot_id == here.boot_id ? node::find(first_process(a)).sight : node::Sight::gone;
}

/// Why Slurm would not have it running any more.
std::optional<std::string> over_for_slurm(const report::AttemptRecord& a, const std::optional<Queue>& queue,
                                          const base::ProcessIdentity& here) {
  if (a.job.empty()) return std::nullopt;
  const auto started = [](int restart) { return fmt::format("its job was started again since (restart {})", restart); };
  if (a.job == here.job) {
    if (a.restart_count < here.restart_count) return started(here.restart_count);
    return std::nullopt;
  }
  if (!queue) return std::nullopt;
  const auto* job = report::find_job(*queue, a.job);
  if (!job) return fmt::format("job {} is no longer in the queue", a.job);
  if (job->restarts > a.restart_count) return started(job->restarts);
  return std::nullopt;
}

std::optional<std::string> why_over(const report::AttemptRecord& a, const std::optional<Queue>& queue,
                                    const base::ProcessIdentity& here) {
  constexpr double settle_s = 30;
  if (!a.end.empty()) {
    const auto at = report::parse_utc(a.end);
    if (at && base::unix_now() - *at < settle_s) return std::nullopt;
    return fmt::format("it ended with exit code {}", a.exit_code);
  }
  switch (first_rank(a, here)) {
    case node::Sight::there:  // what can be seen here beats what Slurm says: a queue that was asked wrongly ends no ranks that
                              // work
      return std::nullopt;
    case node::Sight::gone:
      return a.boot_id == here.boot_id ? "its first rank is gone" : "this host was started again since";
    case node::Sight::hidden:
      break;
  }
  return over_for_slurm(a, queue, here);
}

std::vector<std::string> holdings(const node::Process& p, const fs::path& run, const node::GpuView& gpus) {
  std::vector<std::string> out;
  for (const auto& gpu : gpus.gpus)
    if (std::any_of(gpu.processes.begin(), gpu.processes.end(), [&](const auto& g) { return g.pid == p.pid; }))
      out.push_back(fmt::format("GPU {}", gpu.index));
  for (const auto& file : node::open_files(p.pid)) {
    const auto relative = fs::path(file).lexically_relative(run).string();
    if (!relative.empty() && !relative.starts_with("..")) out.push_back(relative);
  }
  return out;
}

/// What keeps a process that has the pid and the start time from being ended; nothing when it is the one.
std::optional<std::string> why_spared(const node::Process& p, const report::AttemptRecord& a, const fs::path& run,
                                      std::int64_t owner) {
  const auto its_run = node::run_directory_of(p);
  if (its_run != run.string())
    return its_run.empty() ? "it cannot be told to work on this run" : "it works on another run, " + its_run;
  if (p.uid != owner) return fmt::format("it is {}'s", p.user);
  if (fs::path(p.arguments.at(0)).filename() != a.program) return "it is not " + a.program;
  return std::nullopt;
}

const char* how(node::Ending ending) {
  switch (ending) {
    case node::Ending::ended:
      return "TERM";
    case node::Ending::killed:
      return "KILL";
    case node::Ending::gone:
      return "was gone";
    case node::Ending::survived:
      return "survived KILL: it hangs in the kernel";
    case node::Ending::refused:
      return "refused";
  }
  return "";
}
}  // namespace

std::map<std::int64_t, std::string> attempts_over(const report::RunState& state, const std::optional<Queue>& queue,
                                                  const base::ProcessIdentity& here) {
  std::map<std::int64_t, std::string> out;
  for (const auto& a : state.attempts)
    if (const auto why = why_over(a, queue, here)) out[a.number] = *why;
  return out;
}

Leftovers find_leftovers(const fs::path& run_path, const report::RunState& state, const std::map<std::int64_t, std::string>& over,
                         const node::GpuView& gpus) {
  const auto here = base::this_process();
  const auto run = fs::canonical(run_path);
  struct stat st {};
  const std::int64_t owner = ::stat((run / "ledger.jsonl").c_str(), &st) == 0 ? st.st_uid : ::geteuid();
  Leftovers out;
  for (const auto& a : state.attempts) {
    const auto reason = over.find(a.number);
    bool rebooted = false, hidden = false;
    for (const auto& r : ranks_of(a)) {
      if (r.host != here.host || r.boot_id.empty()) continue;
      rebooted = rebooted || r.boot_id != here.boot_id;
      if (!r.was_here(here)) continue;
      const auto seen = node::find(r.process);
      hidden = hidden || seen.sight == node::Sight::hidden;
      const auto& p = seen.process;
      if (reason == over.end() || seen.sight != node::Sight::there || p.pid == here.pid) continue;
      if (const auto why = why_spared(p, a, run, owner))
        out.spared.push_back({p, *why});
      else
        out.found.push_back({a.number, r.rank, a.program, reason->second, p, holdings(p, run, gpus)});
    }
    if (rebooted && a.end.empty() && reason != over.end()) out.rebooted.push_back(a.number);
    if (hidden && a.end.empty()) out.hidden.push_back(a.number);
  }
  return out;
}

std::vector<Stranger> find_strangers(const fs::path& run_path, const report::RunState& state,
                                     const std::map<std::int64_t, std::string>& over, const Leftovers& leftovers,
                                     const node::GpuView& gpus) {
  const auto run = fs::canonical(run_path).string();
  const auto here = base::this_process();
  std::set<std::int64_t> ours{here.pid};  // leftovers, and ranks of attempts that may be at work
  for (const auto& f : leftovers.found) ours.insert(f.process.pid);
  for (const auto& a : state.attempts)
    if (!over.contains(a.number))
      for (const auto& r : ranks_of(a))
        if (r.was_here(here) && node::find(r.process).sight == node::Sight::there) ours.insert(r.process.pid);
  std::map<std::int64_t, Stranger> by_pid;
  for (const auto& gpu : gpus.gpus)
    for (const auto& g : gpu.processes) {
      auto& s = by_pid[g.pid];
      s.process.pid = g.pid;
      if (s.gpus.empty())
        if (auto p = node::look_at(g.pid); p && node::sees_pids_of_the_driver()) s.process = std::move(*p);
      s.gpus.push_back(gpu.index);
      s.bytes += std::max<std::int64_t>(0, g.bytes);
    }
  std::vector<Stranger> out;
  for (auto& [pid, s] : by_pid)
    if (!ours.contains(pid) || node::run_directory_of(s.process) != run) out.push_back(std::move(s));
  return out;
}

bool is_gone(const std::string& word) {
  return word == how(node::Ending::ended) || word == how(node::Ending::killed) || word == how(node::Ending::gone);
}

std::vector<std::string> try_to_end(const std::vector<node::Process>& processes, double grace_s) {
  std::vector<std::string> out;
  const auto ends = node::end_processes(processes, grace_s);
  for (std::size_t i = 0; i < ends.size(); ++i)
    out.push_back(ends[i].ending == node::Ending::refused
                      ? fmt::format("{}; `sudo {}`", ends[i].why, node::how_to_stop(processes[i]))
                      : how(ends[i].ending));
  return out;
}

Json ended_json(const Leftover& f, const std::string& how) {
  return {{"attempt", f.attempt},         {"program", f.program}, {"rank", f.rank},     {"pid", f.process.pid},
          {"command", f.process.command}, {"holds", f.holds},     {"over", f.why_over}, {"how", how}};
}

Json end_leftovers(const std::vector<Leftover>& found, double grace_s) {
  std::vector<node::Process> processes;
  for (const auto& f : found) processes.push_back(f.process);
  const auto words = try_to_end(processes, grace_s);
  Json out = Json::array();
  for (std::size_t i = 0; i < found.size(); ++i) out.push_back(ended_json(found[i], words[i]));
  return out;
}

Json to_json(const Stranger& s) {
  const auto& p = s.process;
  return {{"pid", p.pid},
          {"user", p.user},
          {"command", p.command},
          {"unit", p.unit},
          {"job", p.job},
          {"container", p.container},
          {"gpus", s.gpus},
          {"bytes", s.bytes},
          {"start_ticks", p.start_ticks},
          {"stop", node::how_to_stop(p)}};
}

std::string describe(const Stranger& s) {
  const auto& p = s.process;
  if (p.start_ticks == 0)
    return fmt::format("process {} on GPU {}, {}: cannot be seen from here (another container?)", p.pid, fmt::join(s.gpus, ", "),
                       base::format_bytes(static_cast<double>(s.bytes)));
  const auto starter = !p.container.empty() ? "container " + p.container : !p.unit.empty() ? "unit " + p.unit : "";
  return fmt::format("process {} of {} on GPU {}, {}: {}{}; to stop it: {}", p.pid, p.user, fmt::join(s.gpus, ", "),
                     base::format_bytes(static_cast<double>(s.bytes)), p.command, starter.empty() ? "" : " (" + starter + ")",
                     node::how_to_stop(p));
}

}  // namespace aerie::apps
