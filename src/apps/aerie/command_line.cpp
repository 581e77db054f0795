// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <aerie/config/config.hpp>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include <CLI/CLI.hpp>

namespace aerie::apps {

bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    config::parse(app, argc, argv);
    return true;
  } catch (const CLI::Success&) {
    print(app.help());
    return false;
  }
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace aerie::apps
