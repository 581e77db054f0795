// SPDX-License-Identifier: Apache-2.0
// `aerie run`: every phase that is not done, on this machine or inside an allocation, one after another.
#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/node/gpu.hpp>
#include <aerie/stop/stop_token.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "child.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "launcher.hpp"
#include "phases.hpp"
#include "prepare.hpp"
#include "recovery_items.hpp"
#include "run_lock.hpp"
#include "summary.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using report::Phase;

/// The phases that run in this process publish what they make in one last step, so that the way to stop one is to end at once.
void end_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { ::_exit(static_cast<int>(base::ExitCode::stopped)); };
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    ::sigaction(number, &action, nullptr);
    sigaddset(&ending, number);
  }
  ::sigprocmask(SIG_UNBLOCK, &ending, nullptr);  // job scripts start programs with them blocked
}

class Pipeline {
 public:
  Pipeline(const config::Config& c, int ranks)
      : c_(c), ranks_(ranks), flags_(config::differing_flags(config::load(c.run_dir), c)) {}

  ChildResult perform(Phase phase) {
    switch (phase) {
      case Phase::prepare: {
        const auto lock = lock_run(c_, base::FileLock::Mode::exclusive, "aerie run (prepare)");
        return prepare_datasets(c_);
      }
      case Phase::verify: {
        const auto lock = lock_run(c_, base::FileLock::Mode::exclusive, "aerie run (verify)");
        return finalize_store(c_), ChildResult{};
      }
      case Phase::vocab: {
        const auto lock = lock_run(c_, base::FileLock::Mode::exclusive, "aerie run (vocab)");
        return choose_vocabulary(c_), ChildResult{};
      }
      default:
        return program(phase);
    }
  }

 private:
  ChildResult program(Phase phase) {
    const auto path = program_directory() / fmt::format("aerie-{}", report::phase_name(phase));
    if (!fs::exists(path))
      throw base::MissingInputError(path.string() + ": no such program", "build or install it; it needs LibTorch");
    const int ranks = phase == Phase::export_ ? 1 : ranks_;
    auto argv = launcher_words(c_, ranks);
    argv.insert(argv.end(), {path.string(), "--run", c_.run_dir.string()});
    argv.insert(argv.end(), flags_.begin(), flags_.end());
    auto result = run_child(argv, {.environment = launcher_environment(ranks), .soft_stop = true});
    // Whoever stopped it by a signal waits for the end, and may count the seconds until KILL.
    if (phase != Phase::export_ && !result.asked && was_at_work(result.code))
      result.asked = look_at_gpu_memory(phase, result.code);
    return result;
  }

  /// Not so where it refused to begin: then it has held no memory.
  static bool was_at_work(int code) {
    constexpr std::array refused{2, 66, 69, 78, 93, 126, 127};
    return std::find(refused.begin(), refused.end(), code) == refused.end();
  }
  /// Seconds that the look may take. Stopped safely by a stop file or for the time budget (75), the end is near or waited for.
  static double time_to_look(int code) {
    double most = code == static_cast<int>(base::ExitCode::stopped) ? 20 : 120;
    if (const char* end = std::getenv("AERIE_END_TIME"); end && *end)
      most = std::min(most, std::atof(end) - base::unix_now() - 30);
    return most;
  }

  /// Is the GPUs' memory free again? For the record: whatever comes of it, the phase has ended as it has. True when a stop signal
  /// came meanwhile.
  bool look_at_gpu_memory(Phase phase, int code) {
    const auto path = program_directory() / "aerie-preflight";
    const double limit_s = time_to_look(code);
    if (limit_s < 10 || node::look_at_gpus().visible().empty() || !fs::exists(path)) return false;
    auto argv = launcher_words(c_, ranks_);
    argv.insert(argv.end(),
                {path.string(), "--run", c_.run_dir.string(), "--after", std::string(report::phase_name(phase)), "--quiet"});
    argv.insert(argv.end(), flags_.begin(), flags_.end());
    const auto result = run_child(argv, {.environment = launcher_environment(ranks_), .soft_stop = true, .limit_s = limit_s});
    if (result.code != 0) base::log_warning(fmt::format("the look at the GPUs' memory ended with {}", result.code));
    return result.asked;
  }
  const config::Config& c_;
  int ranks_;
  std::vector<std::string> flags_;
};

/// Ends the command for a phase that did not end well.
int stop_at(const config::Config& c, Phase phase, const ChildResult& result) {
  const auto again = fmt::format("aerie run {}", shell_word(c.run_dir.string()));
  const auto code = result.asked && (result.code == 130 || result.code == 140 || result.code == 143)
                        ? static_cast<int>(base::ExitCode::stopped)
                        : result.code;
  if (code == static_cast<int>(base::ExitCode::stopped)) {
    base::log_info(fmt::format("stopped in phase {}; `{}` goes on", report::phase_name(phase), again));
    return code;
  }
  const auto row = base::explain_exit(code);
  throw base::Error(static_cast<base::ExitCode>(code),
                    fmt::format("phase {} ended with exit code {}", report::phase_name(phase), code),
                    fmt::format("{}; then `{}` goes on here", row ? std::string(row->next) : "look for the cause above", again));
}
}  // namespace

int command_run(int argc, char** argv) {
  CLI::App app("Does every phase of a run that is not done yet.", "aerie run");
  config::Config c;
  int ranks = 1;
  std::string from = "prepare", to = "export";
  bool again = false, reset = false;
  app.add_option("--ranks", ranks, "MPI ranks of extract, train and eval");
  app.add_option("--from", from, "first phase to look at");
  app.add_option("--to", to, "last phase to do");
  app.add_flag("--again", again, "do the phases even when they are complete");
  app.add_flag("--reset-attempts", reset, "after a repair: forget attempts that made no progress");
  config::add_options(app, c);
  if (!parse_command_line(app, argc, argv)) return 0;
  if (c.run_dir.empty()) throw base::ConfigError("RUN is not given", "name the run directory");
  if (ranks < 1) throw base::ConfigError(fmt::format("--ranks is {}, but must be at least 1", ranks));
  config::validate(c);
  if (c.target.path.empty()) throw base::ConfigError("target.path is not set", "name the target model's directory");
  const auto first = std::find(pipeline.begin(), pipeline.end(), phase_named(from)),
             last = std::find(pipeline.begin(), pipeline.end(), phase_named(to));
  if (first > last)
    throw base::ConfigError(fmt::format("--from {} comes after --to {}", from, to), "phases run prepare ... export");
  if (fs::exists(c.run_dir / "stop"))
    throw base::StopRequested((c.run_dir / "stop").string() + " holds the run", "remove it to go on");
  end_on_signals();
  stop::announce_ready();
  report::Ledger ledger(c.run_dir);
  if (reset) ledger.decision("reset-attempts", base::Json::object());

  Pipeline work(c, ranks);
  for (auto phase = first; phase <= last; ++phase) {
    const auto name = report::phase_name(*phase);
    auto why = why_not_done(c, report::replay(ledger.read()), *phase);
    if (!why && again) why = "asked for again";
    if (!why) {
      close_resume(ledger, *phase, {{"phase", name}, {"found", "complete"}});
      base::log_info(fmt::format("{}: complete", name));
      continue;
    }
    base::log_info(fmt::format("{}: {}", name, *why));
    auto result = work.perform(*phase);
    if (result.code == 0 && result.asked && phase != last)
      result.code = static_cast<int>(base::ExitCode::stopped);  // it was just done
    if (result.code != 0) return stop_at(c, *phase, result);
    if (const auto left = why_not_done(c, report::replay(ledger.read()), *phase))
      throw base::Bug(fmt::format("phase {} ended with 0, but {}", name, *left));
    close_resume(ledger, *phase, {{"phase", name}, {"done_by", "aerie run"}});  // a program has done so itself
  }
  print(summary(c));
  return 0;
}

}  // namespace aerie::apps
