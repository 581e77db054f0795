// SPDX-License-Identifier: Apache-2.0
// The subcommands of `aerie`. Each gets its own argv (argv[0] = "aerie NAME"), returns an exit code and throws base::Error.
#pragma once
#include <span>
#include <string_view>

namespace aerie::apps {

int command_init(int argc, char** argv);
int command_vocab(int argc, char** argv);
int command_run(int argc, char** argv);
int command_submit(int argc, char** argv);
int command_status(int argc, char** argv);
int command_ledger(int argc, char** argv);
int command_verify(int argc, char** argv);
int command_inspect(int argc, char** argv);
int command_recover(int argc, char** argv);
int command_accept_missing(int argc, char** argv);
int command_may_requeue(int argc, char** argv);
int command_import(int argc, char** argv);
int command_explain_exit(int argc, char** argv);

struct Command {
  std::string_view name, help;
  int (*run)(int argc, char** argv);
};
std::span<const Command> commands();

}  // namespace aerie::apps
