// SPDX-License-Identifier: Apache-2.0
// `aerie may-requeue`: the no-progress guard for job scripts. After a stop that was asked for always yes; otherwise no after
// three attempts of the program in a row without progress. Prints nothing on stdout; the answer is the exit code.
#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
/// 138 and 140: USR1 or USR2 met a program before its first instruction.
bool was_asked_to_stop(int code) { return code == static_cast<int>(base::ExitCode::stopped) || code == 138 || code == 140; }

/// True when this start of this job has a begin line of `program`.
bool has_begun(const std::vector<base::Json>& lines, const std::string& program, const base::ProcessIdentity& self) {
  return std::any_of(lines.begin(), lines.end(), [&](const base::Json& line) {
    if (line.value("kind", "") != "attempt" || line.value("event", "") != "begin" || line.value("program", "") != program)
      return false;
    const auto process = line.find("process");
    return process != line.end() && process->value("job", "") == self.job &&
           process->value("restart_count", 0) == self.restart_count;
  });
}

/// A program that dies before it can write its begin line would never count, and so be requeued for ever: written here instead.
void record_early_death(report::Ledger& ledger, const std::string& program, int code) {
  const auto number = ledger.attempt_begin(program, {{"recorded_by", "aerie may-requeue"}});
  ledger.attempt_end(number, program, code, fmt::format("died before it could record its start (exit code {})", code));
}
}  // namespace

int command_may_requeue(int argc, char** argv) {
  CLI::App app("For job scripts: exit 0 when a job that ended with CODE may be requeued, 93 when the run makes no progress.",
               "aerie may-requeue");
  std::string run, program;
  int code = 0;
  app.add_option("--run", run, "the run directory")->required();
  app.add_option("--program", program, "whose attempts count (aerie-train); default: of the program that began last");
  app.add_option("CODE", code, "exit code of the launcher")->required();
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!std::filesystem::is_directory(run)) throw base::MissingInputError(run + ": no run directory", "check --run");
  if (was_asked_to_stop(code)) return 0;
  report::Ledger ledger(run);
  auto lines = ledger.read();
  const auto self = base::this_process();
  if (!program.empty() && !self.job.empty() && !has_begun(lines, program, self)) {
    record_early_death(ledger, program, code);
    lines = ledger.read();
  }
  const auto attempts = report::replay(lines).attempts;
  if (attempts.empty()) return 0;
  if (program.empty()) program = attempts.back().program;
  std::optional<std::int64_t> done;  // samples: an attempt that died after commits gets credit
  config::Config config;
  config.run_dir = run;
  if (program == "aerie-extract") done = samples_settled(config);
  constexpr std::int64_t most = 3;
  const auto count = report::attempts_without_progress(lines, program, done, self.job);
  if (count < most) return 0;
  throw base::NoProgressError(fmt::format("{} made no progress in {} attempts in a row", program, count),
                              "look for the cause with `aerie status`; after a repair `aerie run --reset-attempts`");
}

}  // namespace aerie::apps
