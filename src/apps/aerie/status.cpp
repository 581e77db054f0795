// SPDX-License-Identifier: Apache-2.0
// `aerie status`: the ledger's replay with what store and checkpoints say now. Exit 0 whatever the state, 66 when there is no
// run.
#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/report/status.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "phases.hpp"
#include "slurm_queue.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
using base::Json;

/// When a file of the store was last written: several jobs may share it, and only one of them writes the snapshot.
Json last_write(const io::Store& store) {
  double newest = 0;
  for (const auto& part : store.parts()) {
    struct stat st {};
    if (::stat((store.path() / part.file).c_str(), &st) == 0)
      newest = std::max(newest, static_cast<double>(st.st_mtim.tv_sec) + 1e-9 * static_cast<double>(st.st_mtim.tv_nsec));
  }
  return newest > 0 ? Json(newest) : Json{};
}
/// A part that a recovery has set aside and the next extraction makes again: until then the store cannot be counted.
bool waits_for_a_part(const config::Config& config) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(config.store_dir() / "parts", none))
    if (auto part = entry.path(); part.extension() == ".bad" && !std::filesystem::exists(part.replace_extension())) return true;
  return false;
}
Json store_json(const config::Config& config, const report::RunState& state) {
  if (waits_for_a_part(config)) return nullptr;
  const auto view = view_store(config, state);
  if (!view) return nullptr;
  Json failed = Json::array();
  for (const auto& f : view->failed)
    if (!f.excluded)
      failed.push_back(
          {{"sample", f.sample}, {"id", f.id}, {"reason", io::reason_name(f.reason)}, {"text", f.text}, {"decided", f.decided}});
  const auto& c = view->counts;
  return {{"total", c.total},
          {"done", c.done},
          {"failed", c.failed - view->excluded},
          {"missing", c.pending},
          {"excluded", view->excluded},
          {"failed_samples", std::move(failed)},
          {"last_write_unix", last_write(view->store)}};
}
Json checkpoint_json(const config::Config& config) {
  const auto newest = ckpt::latest(config.checkpoint_dir(), false);
  if (!newest) return nullptr;
  Json out = {{"step", newest->step}, {"path", newest->path.string()}};
  struct stat st {};
  if (::stat((newest->path / "MANIFEST.json").c_str(), &st) == 0) out["unix"] = st.st_mtime;
  return out;
}
std::string phase_answer(const std::string& run, const std::string& name) {
  if (!std::filesystem::is_directory(run)) throw base::MissingInputError(run + ": no run directory", "check RUN");
  const auto phase = phase_named(name);
  return why_not_done(config::load(run), report::replay(report::Ledger(run).read()), phase).value_or("complete");
}
/// How the last attempt of `program` that this start of this Slurm job made has ended.
std::string attempt_answer(const std::string& run, const std::string& program) {
  const auto self = base::this_process();
  const auto attempts = report::replay(report::Ledger(run).read()).attempts;
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it)
    if (it->program == program && it->job == self.job && it->begin_details.value("restart_count", 0) == self.restart_count)
      return it->end.empty() ? "no end" : fmt::format("{}", it->exit_code);
  return "none";
}
/// A damaged part must not hide the rest: it is left out, and told as a problem.
template <class F>
Json or_null(const char* what, std::vector<std::string>& problems, F&& f) {
  Json out;
  if (const auto error = base::capture([&] { out = f(); })) problems.push_back(fmt::format("{}: {}", what, error->what()));
  return out;
}
/// Complete phases that `aerie run` would do again.
std::map<report::Phase, std::string> outdated_phases(const config::Config& config, const report::RunState& state) {
  std::map<report::Phase, std::string> out;
  for (const auto phase : pipeline) {
    const auto record = state.phases.find(phase);
    if (record == state.phases.end() || record->second.state != report::PhaseState::complete) continue;
    if (const auto why = why_not_done(config, state, phase)) out[phase] = *why;
  }
  return out;
}
Json status_of(const std::string& run) {
  config::Config config;
  config.run_dir = run;
  // The status of a run whose configuration is broken is still worth seeing.
  bool configured = false;
  if (std::filesystem::exists(config.run_dir / "aerie.toml")) {
    const auto error = base::capture([&] { config = config::load(run); });
    if (error) base::log_warning(error->what());
    configured = !error;
  }
  report::RunState state;  // one that is damaged is told by build_status
  static_cast<void>(base::capture([&] { state = report::replay(report::Ledger(run).read()); }));
  report::Outside outside;
  outside.queue = jobs_in_queue(state);
  if (configured) outside.outdated = outdated_phases(config, state);
  const auto store = or_null("store", outside.problems, [&] { return store_json(config, state); });
  const auto checkpoint = or_null("checkpoints", outside.problems, [&] { return checkpoint_json(config); });
  return report::build_status(run, store, checkpoint, outside);
}
}  // namespace

int command_status(int argc, char** argv) {
  CLI::App app("What is done, what is not and why, and the next step to take.", "aerie status");
  std::string run;
  std::string phase, program;
  bool json = false, watch = false;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_flag("--json", json, "print JSON (docs/reference/status.md)");
  app.add_flag("--watch", watch, "refresh every 2 seconds until interrupted");
  app.add_option("--phase", phase, "for scripts: print \"complete\", or why this phase is not");
  app.add_option("--attempt", program,
                 "for job scripts: print the exit code of this program's last attempt in this start of this job");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!program.empty()) return print(attempt_answer(run, program)), 0;
  if (!phase.empty()) return print(phase_answer(run, phase)), 0;
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (;;) {
    const auto status = status_of(run);
    if (watch && terminal && !json) std::fputs("\x1b[H\x1b[2J", stdout);
    print(json ? status.dump(watch ? -1 : 1) : report::format_status(status));
    if (!watch) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
}

}  // namespace aerie::apps
