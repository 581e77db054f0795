// SPDX-License-Identifier: Apache-2.0
// Findings for people and for programs.
#include <aerie/preflight/preflight.hpp>

#include <fmt/format.h>

namespace aerie::preflight {

std::string_view result_name(Result result) { return result == Result::pass ? "PASS" : result == Result::warn ? "WARN" : "FAIL"; }

std::string format_table(const std::vector<Finding>& findings) {
  constexpr std::size_t most = 12;  // lines of one check; the rest is in the record
  const auto row = [](std::string_view check, std::string_view result, std::string_view seen) {
    return fmt::format("{:<14} {:<7} {}\n", check, result, seen);
  };
  std::string out = row("check", "result", "seen");
  for (const auto& f : findings) {
    for (std::size_t i = 0; i < std::min(most, f.seen.size()); ++i)
      out += i == 0 ? row(f.check, result_name(f.result), f.seen[i]) : row("", "", f.seen[i]);
    if (f.seen.size() > most) out += row("", "", fmt::format("and {} more", f.seen.size() - most));
    if (f.result != Result::pass) out += row("", "", "-> " + f.advice);
  }
  return out;
}

base::Json to_json(const std::vector<Finding>& findings) {
  base::Json list = base::Json::array();
  for (const auto& f : findings)
    list.push_back({{"check", f.check},
                    {"result", result_name(f.result)},
                    {"seen", f.seen},
                    {"advice", f.advice},
                    {"hosts", f.hosts},
                    {"details", f.details}});
  return {{"schema", "aerie-preflight"}, {"version", 2}, {"checks", list}};
}

}  // namespace aerie::preflight
