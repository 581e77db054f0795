// SPDX-License-Identifier: Apache-2.0
// Small helpers that the subcommands share: parsing with --help, results on stdout.
#pragma once
#include <string>

#include "shell_word.hpp"

namespace CLI {
class App;
}

namespace aerie::apps {

/// False when --help was asked for and printed. Throws ConfigError for a wrong command line.
bool parse_command_line(CLI::App& app, int argc, char** argv);
/// Results go to stdout, and nothing else does.
void print(const std::string& text);

}  // namespace aerie::apps
