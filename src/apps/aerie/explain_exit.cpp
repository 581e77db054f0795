// SPDX-License-Identifier: Apache-2.0
// `aerie explain-exit N`: a row of the table of exit codes.
#include <aerie/base/error.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"

namespace aerie::apps {

int command_explain_exit(int argc, char** argv) {
  CLI::App app("What an exit code means, what the job script does, and what to do next.", "aerie explain-exit");
  int code = 0;
  app.add_option("N", code, "the exit code")->required();
  if (!parse_command_line(app, argc, argv)) return 0;
  const auto row = base::explain_exit(code);
  if (!row) {
    std::string known;
    for (const auto& r : base::exit_code_table())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", static_cast<int>(r.code));
    throw base::ConfigError(fmt::format("{} is no exit code of aerie or its launchers", code), "aerie's are " + known);
  }
  print(fmt::format("{} {}: {}\njob script: {}\nnext: {}", code, row->name, row->meaning, row->batch, row->next));
  return 0;
}

}  // namespace aerie::apps
