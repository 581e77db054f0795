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

std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_./,:+@=").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace aerie::apps
