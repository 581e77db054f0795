// SPDX-License-Identifier: Apache-2.0
#include "preflight_phase.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/node/gpu.hpp>
#include <aerie/preflight/preflight.hpp>

#include "preflight_clear.hpp"
#include "preflight_nccl.hpp"
#include "preflight_needs.hpp"
#include "shell_word.hpp"
#include "version_record.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using preflight::Finding;
using preflight::Result;

fs::path program_beside(const std::string& name) {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path() / name;
}

/// The build and the libraries it loaded here. This program's bytes and its siblings' sizes tell two builds of one version apart.
std::string version_here() {
  auto text = version_record().dump() + base::read_text("/proc/self/exe");
  for (const auto* sibling : {"aerie", "aerie-extract", "aerie-train", "aerie-eval", "aerie-export"}) {
    std::error_code none;
    const auto size = fs::file_size(program_beside(sibling), none);
    text += fmt::format(" {} {}", sibling, none ? 0 : size);
  }
  return fmt::format("{}, {}", base::producer(), base::xxh3_128_tagged(text));
}

preflight::Request request_of(const ProgramContext& context, const PreflightFlags& flags) {
  const auto& c = context.config;
  preflight::Request r;
  r.run = c.run_dir;
  r.version = version_here();
  r.recover_command = "aerie recover " + shell_word(c.run_dir.string());
  r.locks = c.run.locks != "none";
  r.nodes = flags.nodes;
  r.gpus = flags.gpus;
  if (const auto end = stop::StopToken::end_time_from_environment()) r.seconds_left = *end - base::unix_now();
  r.warning_s = flags.warning_s;
  r.limits.min_bandwidth = flags.min_bandwidth_gb * 1e9;
  r.limits.clock_s = flags.clock_bound_s;
  return r;
}

/// What only the checks before a phase need.
void add_phase(const config::Config& c, const PreflightFlags& flags, preflight::Request& r) {
  r.libraries = libraries_of(program_beside("aerie-train"));
  if (flags.phase == "verify" || flags.phase == "export") {  // on no GPU: who else is on the node's is not this job's business
    r.only = {"layout", "time", "version", "libraries", "clock", "directory", "locks", "space", "host-memory", "scratch", "mpi"};
    r.needs = phase_needs(c, flags.phase, false);
    r.needs.ranks_per_node = std::max(std::int64_t{1}, flags.ranks_per_node);
    return;
  }
  if (c.target.device != "cpu") r.gpu_network = nccl_network();
  const bool on_gpu = c.target.device == "cuda" || (r.gpu_network && !node::look_at_gpus().visible().empty());
  r.needs = phase_needs(c, flags.phase, on_gpu);
  r.needs.ranks_per_node = std::max(std::int64_t{1}, flags.ranks_per_node);
}

/// Passed checks in short: a line of the ledger should not hold every GPU of a large job.
base::Json for_the_ledger(base::Json all) {
  for (auto& check : all.at("checks"))
    if (check.at("result") == "PASS") check.erase("details"), check.erase("advice"), check.erase("hosts");
  return all;
}

void print(const ProgramContext& context, const std::vector<Finding>& findings, const base::Json& all) {
  std::fputs((context.json ? all.dump(1) + "\n" : preflight::format_table(findings)).c_str(), stdout);
  std::fflush(stdout);
}

/// Throws 69 for what `findings` and `strict` come to. The same on all ranks.
int verdict(const std::vector<Finding>& findings, bool strict) {
  for (const auto least : {Result::fail, Result::warn}) {
    if (least == Result::warn && !strict) break;
    for (const auto& f : findings) {
      if (f.result < least) continue;
      const auto exclude = f.hosts.empty() ? "" : fmt::format("; or submit with --exclude={}", fmt::join(f.hosts, ","));
      throw base::Error(base::ExitCode::preflight, fmt::format("preflight: {}: {}", f.check, f.seen.front()), f.advice + exclude);
    }
  }
  return 0;
}

/// Slurm's names of the hosts, where it gave them another. Collective.
std::map<std::string, std::string> node_names(const comm::Comm& world) {
  const char* name = std::getenv("SLURMD_NODENAME");
  const auto hosts = world.all_gather(base::host_name());
  const auto nodes = world.all_gather(std::string(name ? name : ""));
  std::map<std::string, std::string> out;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    if (!nodes[r].empty()) out[hosts[r]] = nodes[r];
  return out;
}

/// For job scripts: the hosts that all trouble is on, one a line; no file when it is not theirs alone.
void write_unfit(const std::vector<Finding>& findings, const PreflightFlags& flags,
                 const std::map<std::string, std::string>& names) {
  std::set<std::string> hosts;
  for (const auto& f : findings) {
    if (f.result == Result::pass || (f.result == Result::warn && !flags.strict)) continue;
    if (f.hosts.empty()) return;
    for (const auto& h : f.hosts) hosts.insert(names.contains(h) ? names.at(h) : h);
  }
  if (!hosts.empty()) base::publish_text(flags.unfit, fmt::format("{}\n", fmt::join(hosts, "\n")), false);
}

/// Ends this rank, and so the job's step, when a check does not come to its end: a broken fabric can keep all ranks inside one.
class Watch {
 public:
  /// `limit_s` 0: never.
  explicit Watch(double limit_s) : limit_s_(limit_s), thread_([this](std::stop_token stop) { look(stop); }) {}
  /// AERIE_CHECK_LIMIT_SECONDS. Throws ConfigError.
  static double limit_from_environment() {
    const char* text = std::getenv("AERIE_CHECK_LIMIT_SECONDS");
    if (!text || !*text) return 300;
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (*end == '\0' && std::isfinite(value) && value >= 0) return value;
    throw base::ConfigError(fmt::format("AERIE_CHECK_LIMIT_SECONDS=\"{}\" is no number of seconds", text), "0 means: never");
  }
  void pet(std::string_view doing) {
    const std::lock_guard lock(mutex_);
    doing_ = doing;
    since_ = std::chrono::steady_clock::now();
  }

 private:
  void look(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(mutex_);
      if (limit_s_ <= 0 || std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count() < limit_s_) continue;
      base::log_error(fmt::format(
          "preflight: {} did not end in {:.0f} s, seen on {}: the network, a disk or a GPU hangs (exclude nodes until it ends; "
          "AERIE_CHECK_LIMIT_SECONDS sets the limit)",
          doing_, limit_s_, base::host_name()));
      ::_exit(static_cast<int>(base::ExitCode::preflight));
    }
  }
  double limit_s_;
  std::mutex mutex_;  // of the next two
  std::string doing_ = "clearing the nodes";
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::jthread thread_;  // last: it reads the others
};

using Poll = std::function<void(std::string_view)>;

int before(const ProgramContext& context, const PreflightFlags& flags, const Poll& poll, Watch& watch) {
  clear_nodes(context);  // collective over world
  auto request = request_of(context, flags);
  add_phase(context.config, flags, request);
  const auto names = node_names(context.world);  // collective over world
  const auto findings = preflight::examine(context.world, request, poll);
  watch.pet("writing the record");
  auto all = preflight::to_json(findings);
  const auto result = preflight::worst(findings);
  all["result"] = preflight::result_name(result);
  all["strict"] = flags.strict;
  if (context.world.is_root()) {
    print(context, findings, all);
    const bool ok = result == Result::pass || (result == Result::warn && !flags.strict);
    // Where the run directory is the trouble the record has no place; the table has told it.
    const auto error = base::capture([&] {
      context.ledger.phase(report::Phase::preflight, ok ? report::PhaseState::complete : report::PhaseState::failed,
                           for_the_ledger(all));
    });
    if (error) base::log_warning(error->what());
    const auto unwritten = base::capture([&] {
      if (!flags.unfit.empty()) write_unfit(findings, flags, names);
    });
    if (unwritten) base::log_warning(unwritten->what());
  }
  return verdict(findings, flags.strict);
}

int after(const ProgramContext& context, const PreflightFlags& flags, const Poll& poll) {
  const std::vector<Finding> findings{
      preflight::examine_after(context.world, request_of(context, flags), flags.wait_s, [&] { poll("gpu-memory"); })};
  auto all = preflight::to_json(findings);
  all["result"] = preflight::result_name(findings[0].result);
  all["strict"] = flags.strict;
  all["after"] = flags.after;
  if (context.world.is_root()) {
    if (!flags.quiet) print(context, findings, all);
    for (const auto& line : findings[0].seen)
      if (findings[0].result != Result::pass) base::log_warning("after " + flags.after + ": " + line);
    auto evidence = findings[0].details;
    if (!evidence.at("nodes").empty()) {
      evidence["phase"] = flags.after;
      evidence["result"] = all["result"];
      context.ledger.evidence("gpu-memory", evidence);
    }
  }
  return verdict(findings, flags.strict);
}
}  // namespace

int preflight_phase(const ProgramContext& context, const PreflightFlags& flags) {
  if (!flags.after.empty() && !flags.phase.empty())
    throw base::ConfigError("--phase and --after do not go together", "--phase looks ahead, --after back");
  if (flags.gpus < 0 || flags.nodes < 0 || flags.wait_s < 0 || flags.min_bandwidth_gb < 0 || flags.clock_bound_s <= 0)
    throw base::ConfigError("a number of preflight's flags is negative", "0 means: not asked for");
  for (const double number : {flags.wait_s, flags.min_bandwidth_gb, flags.clock_bound_s, flags.warning_s})
    if (!std::isfinite(number)) throw base::ConfigError("a number of preflight's flags is none", "give seconds or GB/s");
  if (flags.warning_s < 0) throw base::ConfigError("--warning is negative", "seconds before the end of the job");
  if (!flags.after.empty())
    if (const auto error = base::capture([&] { report::phase_from_name(flags.after); }))
      throw base::ConfigError("--after " + flags.after + ": " + error->what(), "extract, train, eval or export");
  Watch watch(Watch::limit_from_environment());
  const auto poll = [&](std::string_view doing) {
    watch.pet(doing);
    if (context.stop.agree(context.world) == stop::Request::stop)  // collective over world
      throw base::StopRequested("stopped in preflight: " + context.stop.reason(), "run the same command again");
  };
  return flags.after.empty() ? before(context, flags, poll, watch) : after(context, flags, poll);
}

}  // namespace aerie::apps
