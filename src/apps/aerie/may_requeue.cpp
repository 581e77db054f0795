// SPDX-License-Identifier: Apache-2.0
// `aerie may-requeue`: the no-progress guard for job scripts. After 75 always yes; otherwise no after three attempts of the
// program that ran last without progress. Prints nothing on stdout; the answer is the exit code.
#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/io/store.hpp>
#include <aerie/report/ledger.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"

namespace aerie::apps {

int command_may_requeue(int argc, char** argv) {
  CLI::App app("For job scripts: exit 0 when a job that ended with CODE may be requeued, 93 when the run makes no progress.",
               "aerie may-requeue");
  std::string run;
  int code = 0;
  app.add_option("--run", run, "the run directory")->required();
  app.add_option("CODE", code, "exit code of the launcher")->required();
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!std::filesystem::is_directory(run)) throw base::MissingInputError(run + ": no run directory", "check --run");
  if (code == static_cast<int>(base::ExitCode::stopped)) return 0;
  const auto lines = report::Ledger(run).read();
  const auto attempts = report::replay(lines).attempts;
  if (attempts.empty()) return 0;
  const auto& program = attempts.back().program;
  std::optional<std::int64_t> done;  // samples: an attempt that died after commits gets credit
  const auto store = std::filesystem::path(run) / "store";
  if (program == "aerie-extract" && io::Store::exists(store)) done = io::Store::open(store).counts().done;
  constexpr std::int64_t most = 3;
  const auto count = report::attempts_without_progress(lines, program, done);
  if (count < most) return 0;
  throw base::NoProgressError(fmt::format("{} made no progress in {} attempts in a row", program, count),
                              "look for the cause with `aerie status`; after a repair `aerie run --reset-attempts`");
}

}  // namespace aerie::apps
