// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/report/commit_clock.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "inputs.hpp"
#include "outcome.hpp"
#include "phase_inputs.hpp"
#include "recovery_items.hpp"
#include "run_end.hpp"
#include "run_lock.hpp"
#include "version_record.hpp"

namespace aerie::apps {
namespace {

double abort_after_s() {
  const char* text = std::getenv("AERIE_ABORT_AFTER");
  return text ? std::atof(text) : 10.0;
}
void print_from_root(const comm::Comm& world, const std::string& text) {
  if (!world.is_root()) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

class Program {
 public:
  Program(const ProgramSpec& spec, const comm::Comm& world) : spec_(spec), world_(world), program_("aerie-" + spec.name) {}

  /// Parses and, unless a flag asked for something else, runs. The code of this rank.
  int run(int argc, char** argv) {
    CLI::App app(spec_.description, program_);
    bool version = false, print_config = false, check = false;
    bool& json = json_;
    app.add_flag("--version", version, "print what this program was built with and what it loaded");
    app.add_flag("--json", json, "with --version, and where a program prints results: as JSON");
    app.add_flag("--print-config", print_config, "print the configuration after file and flags, and stop");
    app.add_flag("--check", check, "check the configuration and every path in it, and stop");
    if (spec_.add_options) spec_.add_options(app);
    config::add_options(app, config_);
    std::optional<std::string> help;
    const auto parse = [&] {
      try {
        config::parse(app, argc, argv);
      } catch (const CLI::Success&) {
        help = app.help();
      }
    };
    same_error_once("options", parse);
    if (help) return print_from_root(world_, *help), 0;
    if (version) {
      const auto record = version_record();
      return print_from_root(world_, json ? record.dump(1) + "\n" : format_version(program_, record)), 0;
    }
    same_error_once("configuration", [&] { config::validate(config_); });
    if (print_config) return print_from_root(world_, config::commented_toml(config_)), 0;
    if (check) {
      same_error_once("check", [&] { check_paths(config_); });
      return print_from_root(world_, "configuration and paths are in order\n"), 0;
    }
    demand_run();
    return attempt();
  }

  /// The attempt's end line; a phase that is still running becomes interrupted or failed. On rank 0, or on the rank that ends
  /// all.
  void record_end(const Outcome& end) {
    if (!ledger_ || attempt_ == 0) return;
    const auto reason = end.what.empty() ? (end.code == 0 ? "done" : fmt::format("exit {}", end.code)) : end.what;
    close_phase(end);
    if (end.code == 0) close_resumed();
    ledger_->attempt_end(attempt_, program_, end.code, reason, end_details_);
  }

 private:
  /// An error of all ranks alike (a wrong flag) reads better without a rank; one rank's own error must still reach all.
  template <class F>
  void same_error_once(std::string_view phase, F&& f) {
    const auto mine = base::capture(std::forward<F>(f));
    const auto texts = world_.all_gather(mine ? std::string(mine->what()) : std::string());
    bool same = true;
    for (const auto& t : texts) same = same && t == texts.front();
    if (mine && same) throw *mine;
    if (!same) comm::agree(world_, phase, mine);
  }
  void demand_run() {
    same_error_once("configuration", [&] {
      if (config_.run_dir.empty()) throw base::ConfigError("--run DIR is not given", "name the run directory");
      if (!std::filesystem::is_directory(config_.run_dir))
        throw base::MissingInputError(config_.run_dir.string() + ": no such directory", "make a run with `aerie init`");
      if (config_.target.path.empty()) throw base::ConfigError("target.path is not set", "name the target model's directory");
    });
    const auto hashes = world_.all_gather(config::config_hash(config_));
    for (std::size_t r = 1; r < hashes.size(); ++r)
      if (hashes[r] != hashes[0])
        throw base::ConfigError(fmt::format("rank {} reads another configuration than rank 0", r),
                                "the run directory must be shared");
  }

  int attempt() {
    stop::StopToken stop(config_.run_dir, world_.is_root());
    if (stop.agree(world_) == stop::Request::stop)
      throw base::StopRequested(stop.reason().empty() ? "a stop was asked for" : stop.reason());
    comm::agree_after(world_, "lock", [&] {
      if (world_.is_root() && spec_.lock != ProgramSpec::Lock::none)
        lock_ = lock_run(config_,
                         spec_.lock == ProgramSpec::Lock::shared ? base::FileLock::Mode::shared : base::FileLock::Mode::exclusive,
                         program_);
    });
    ledger_.emplace(config_.run_dir);
    const auto details = attempt_details();
    comm::agree_after(world_, "begin", [&] {
      if (!world_.is_root() || !spec_.is_attempt) return;
      base::publish_text(config_.run_dir / "resolved.json",
                         base::Json{{"config", config::to_json(config_)}, {"hash", config::config_hash(config_)}}.dump(1) + "\n");
      attempt_ = ledger_->attempt_begin(program_, details);
    });
    attempt_ = world_.broadcast(attempt_);
    report::StatusFile status(config_.run_dir, attempt_);
    if (world_.is_root() && spec_.is_attempt) {  // from now on it is this attempt's silence that counts
      base::Json begun{{"phase", spec_.name}};
      report::CommitClock(0, base::unix_now()).add_to(begun);
      status.update(begun);
    }
    const ProgramContext context{config_, world_, stop, *ledger_, attempt_, status, json_, end_details_};
    return spec_.body(context);
  }

  base::Json attempt_details() {
    const auto self = base::this_process();
    const auto hosts = world_.all_gather(self.host);
    const auto boots = world_.all_gather(self.boot_id);
    base::Json by_host = base::Json::object();
    const auto pids = world_.all_gather(self.pid);
    const auto starts = world_.all_gather(self.start_ticks);
    const auto namespaces = world_.all_gather(self.pid_namespace);  // a site may start each rank in a container of its own
    base::Json processes = base::Json::array();  // whom to look for later: which are still there, and what they wait for
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      by_host[hosts[r]] = boots[r];
      processes.push_back(
          {{"rank", r}, {"host", hosts[r]}, {"pid_namespace", namespaces[r]}, {"pid", pids[r]}, {"start_ticks", starts[r]}});
    }
    base::Json inputs;  // of a program that is a phase
    for (int p = 0; p <= static_cast<int>(report::Phase::bench); ++p)
      if (report::phase_name(static_cast<report::Phase>(p)) == spec_.name)
        inputs = phase_inputs(config_, static_cast<report::Phase>(p));
    base::Json details{{"inputs", inputs},
                       {"ranks", world_.size()},
                       {"hosts", hosts},
                       {"boot_ids", by_host},
                       {"processes", processes},
                       {"versions", version_record()},
                       {"config_hash", config::config_hash(config_)},
                       {"restart_count", self.restart_count}};
    comm::agree_after(world_, "work done so far", [&] {
      if (!world_.is_root() || !spec_.done_so_far) return;
      if (const auto done = spec_.done_so_far(config_)) details["done"] = *done;
    });
    return details;
  }

  /// Not so where other jobs still work on it: a task of an array ends 0 as well.
  bool is_complete(report::Phase phase) const {
    const auto phases = report::replay(ledger_->read()).phases;
    const auto it = phases.find(phase);
    return it != phases.end() && it->second.state == report::PhaseState::complete;
  }
  /// A recovery may have left this phase's work to do.
  void close_resumed() {
    for (int p = 0; p <= static_cast<int>(report::Phase::bench); ++p)
      if (const auto phase = static_cast<report::Phase>(p); report::phase_name(phase) == spec_.name && is_complete(phase))
        close_resume(*ledger_, phase, {{"program", program_}, {"attempt", attempt_}, {"details", end_details_}});
  }

  void close_phase(const Outcome& end) {
    if (end.code == 0) return;
    for (const auto& [phase, record] : report::replay(ledger_->read()).phases)
      if (report::phase_name(phase) == spec_.name && record.state == report::PhaseState::running)
        ledger_->phase(phase, end.code == 75 ? report::PhaseState::interrupted : report::PhaseState::failed,
                       {{"exit_code", end.code}, {"reason", end.what}});
  }

  const ProgramSpec& spec_;
  const comm::Comm& world_;
  std::string program_;
  config::Config config_;
  std::optional<base::FileLock> lock_;  // held until the end is recorded
  std::optional<report::Ledger> ledger_;
  std::int64_t attempt_ = 0;
  bool json_ = false;
  base::Json end_details_ = base::Json::object();
};

}  // namespace

void end_if_stopped(const ProgramContext& context, const std::string& doing) {
  if (context.stop.agree(context.world) != stop::Request::stop) return;  // collective over world
  throw base::StopRequested(fmt::format("stopped by {} while {}", context.stop.reason(), doing),
                            "run the same command again: it goes on where it was");
}

int run_mpi_program(int argc, char** argv, const ProgramSpec& spec) {
  stop::StopToken::install_handlers();
  comm::Environment environment(argc, argv);
  const auto world = environment.world();
  if (world.is_root()) stop::announce_ready();  // MPI_Init has met every rank
  base::set_log_identity(spec.name, world.rank(), world.size());
  // A communicator of its own for the end: what the body left unfinished on `world` cannot be taken for it.
  MPI_Comm raw = MPI_COMM_NULL;
  comm::check(MPI_Comm_dup(world.get(), &raw));
  const auto last = comm::Comm::own(raw);

  Program program(spec, world);
  const auto mine = outcome_of([&] { return program.run(argc, argv); });
  const auto record = [&](const Outcome& end) { return outcome_of([&] { return program.record_end(end), 0; }); };
  auto end = end_together(last, mine, abort_after_s(), [&] { record(mine); });
  const auto recorded = world.is_root() ? record(end) : Outcome{};
  if (recorded.failed()) {
    base::log_error(error_line(recorded));
    if (end.code == 0) end.code = recorded.code;
  }
  if (end.code == 75 && world.is_root()) base::log_info("stopped safely: " + (end.what.empty() ? "as asked" : end.what));
  return static_cast<int>(last.broadcast(std::int64_t{end.code}));
}

}  // namespace aerie::apps
