// SPDX-License-Identifier: Apache-2.0
// `aerie ledger`: the record of a run, one line an event; --json prints the lines as they are.
#include <aerie/base/error.hpp>
#include <aerie/report/ledger.hpp>

#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"

namespace aerie::apps {
namespace {
std::string for_people(const base::Json& line) {
  std::string out = fmt::format("{} {}", line.value("time", ""), line.value("kind", ""));
  for (const char* key : {"program", "event", "number", "phase", "state", "step", "exit_code", "what", "sample", "id", "content",
                          "priority", "status", "reason", "text"})
    if (const auto it = line.find(key); it != line.end() && !(it->is_string() && it->get<std::string>().empty()))
      out += fmt::format(" {}={}", key, it->is_string() ? it->get<std::string>() : it->dump());
  for (const char* key : {"evidence", "details"}) {
    const auto it = line.find(key);
    if (it == line.end() || !it->is_object()) continue;
    for (const auto& [name, v] : it->items())
      if (!v.is_structured()) out += fmt::format(" {}={}", name, v.is_string() ? v.get<std::string>() : v.dump());
  }
  return out;
}
}  // namespace

int command_ledger(int argc, char** argv) {
  CLI::App app("The append-only record of a run.", "aerie ledger");
  std::string run;
  bool follow = false, json = false;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_flag("--follow", follow, "wait for new lines until interrupted");
  app.add_flag("--json", json, "print the lines as they are");
  if (!parse_command_line(app, argc, argv)) return 0;
  const report::Ledger ledger(run);
  if (!std::filesystem::exists(ledger.path()))
    throw base::MissingInputError(ledger.path().string() + ": no such file", "is this a run directory?");
  std::size_t shown = 0;
  for (;;) {
    const auto lines = ledger.read();
    for (; shown < lines.size(); ++shown) print(json ? lines[shown].dump() : for_people(lines[shown]));
    if (!follow) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

}  // namespace aerie::apps
