// SPDX-License-Identifier: Apache-2.0
// `aerie`: the program for login nodes. Finds the subcommand, runs it, ends with one error line at most.
#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/config/config.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "command_line.hpp"
#include "commands.hpp"
#include "outcome.hpp"
#include "version_record.hpp"

namespace aerie::apps {

std::span<const Command> commands() {
  static constexpr std::array<Command, 13> all{{
      {"init", "make a run: check target and conversations, write a commented aerie.toml", command_init},
      {"run", "do every phase that is not done: prepare, extract, verify, vocab, train, eval, export", command_run},
      {"submit", "what is not done yet, as a chain of Slurm jobs", command_submit},
      {"status", "what is done, what is not, and the next step to take", command_status},
      {"ledger", "the record of a run", command_ledger},
      {"vocab", "count loss tokens and choose the draft vocabulary", command_vocab},
      {"verify", "check a run, store or checkpoint against its checksums", command_verify},
      {"inspect", "what a store, checkpoint, dataset, safetensors file or model directory holds", command_inspect},
      {"recover", "after a crash: what survived, end leftovers, verify, go on with what is missing", command_recover},
      {"accept-missing", "record the decision to go on without failed samples", command_accept_missing},
      {"may-requeue", "for job scripts: 0 when the run may be requeued, 93 when it makes no progress", command_may_requeue},
      {"import", "make a dataset of tokenised JSON lines", command_import},
      {"explain-exit", "what an exit code means", command_explain_exit},
  }};
  return all;
}

namespace {
std::string usage() {
  std::string out =
      "aerie raises EAGLE-3 draft models on clusters.\n\nusage: aerie COMMAND [ARGUMENTS]   (aerie COMMAND --help)\n\n";
  for (const auto& c : commands()) out += fmt::format("  {:<16} {}\n", c.name, c.help);
  return out + "\n  --version [--json]  what this program was built with and what it loaded\n";
}

int dispatch(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) throw base::ConfigError("no command is given", "`aerie --help` lists the commands");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") return print(usage()), 0;
  if (args[0] == "--version") {
    const auto record = version_record();
    if (args.size() > 1 && args[1] != "--json")
      throw base::ConfigError("unknown flag '" + args[1] + "'", "did you mean '--json'?");
    return print(args.size() > 1 ? record.dump(1) : format_version("aerie", record)), 0;
  }
  for (const auto& c : commands()) {
    if (args[0] != c.name) continue;
    std::string name = fmt::format("aerie {}", c.name);
    std::vector<char*> rest{name.data()};
    rest.insert(rest.end(), argv + 2, argv + argc);
    return c.run(static_cast<int>(rest.size()), rest.data());
  }
  std::vector<std::string> names;
  for (const auto& c : commands()) names.emplace_back(c.name);
  throw base::ConfigError(fmt::format("unknown command '{}'", args[0]),
                          fmt::format("did you mean '{}'?", config::nearest_of(args[0], names)));
}
}  // namespace

}  // namespace aerie::apps

int main(int argc, char** argv) {
  aerie::base::set_log_identity("aerie", 0, 1);
  const auto end = aerie::apps::outcome_of([&] { return aerie::apps::dispatch(argc, argv); });
  if (!end.what.empty()) std::fprintf(stderr, "%s\n", aerie::apps::error_line(end).c_str());
  return end.code;
}
