// SPDX-License-Identifier: Apache-2.0
// `aerie ledger`: the record of a run, one line an event; --json prints the lines as they are, --follow goes on as they come.
#include <aerie/base/error.hpp>
#include <aerie/config/config.hpp>
#include <aerie/report/ledger.hpp>
#include <aerie/report/ledger_view.hpp>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"

namespace aerie::apps {
namespace {
volatile std::sig_atomic_t interrupted = 0;

/// INT and TERM end the following, not the command in the middle of a line; a reader that has gone is seen below.
void end_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}
/// Waits for `ms`; false when nobody reads what is printed any more.
bool wait_while_read(int ms) {
  pollfd out{STDOUT_FILENO, 0, 0};  // an error is reported without being asked for: the other end of the pipe is closed
  return ::poll(&out, 1, ms) <= 0 || (out.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

std::set<std::string> kinds_of(const std::string& list) {
  const auto& known = report::ledger_kinds();
  std::set<std::string> out;
  std::istringstream in(list);
  for (std::string kind; std::getline(in, kind, ',');) {
    if (std::find(known.begin(), known.end(), kind) == known.end())
      throw base::ConfigError(
          fmt::format("--kind {}: the ledger has no such kind", kind),
          fmt::format("did you mean '{}'? Known: {}", config::nearest_of(kind, known), fmt::join(known, ", ")));
    out.insert(kind);
  }
  return out;
}
}  // namespace

int command_ledger(int argc, char** argv) {
  CLI::App app("The append-only record of a run.", "aerie ledger");
  std::string run, kinds;
  bool follow = false, json = false;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_option("--kind", kinds, "only these kinds, separated by commas: phase,todo");
  app.add_flag("--follow", follow, "wait for new lines until interrupted");
  app.add_flag("--json", json, "print the lines as they are");
  if (!parse_command_line(app, argc, argv)) return 0;
  const auto wanted = kinds_of(kinds);
  const report::Ledger ledger(run);
  if (!std::filesystem::exists(ledger.path()))
    throw base::MissingInputError(ledger.path().string() + ": no such file", "is this a run directory?");
  const auto show = [&](const std::vector<base::Json>& lines) {
    const auto is_wanted = [&](const base::Json& line) {
      const auto kind = line.is_object() ? line.value("kind", base::Json{}) : base::Json{};
      return wanted.empty() || (kind.is_string() && wanted.contains(kind.get<std::string>()));
    };
    for (const auto& line : lines)
      if (is_wanted(line)) print(json ? line.dump() : report::format_ledger_line(line));
  };
  if (!follow) return show(ledger.read()), 0;
  end_on_signals();
  report::LedgerTail tail(ledger.path());
  do show(tail.read());
  while (std::ferror(stdout) == 0 && wait_while_read(500) && interrupted == 0);
  return 0;
}

}  // namespace aerie::apps
