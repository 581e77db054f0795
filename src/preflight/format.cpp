// SPDX-License-Identifier: Apache-2.0
// Findings for people and for programs.
#include <aerie/preflight/preflight.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace aerie::preflight {

bool all_ok(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.ok; });
}

std::string format_table(const std::vector<Finding>& findings) {
  std::string out = fmt::format("{:<10} {:<7} {}\n", "check", "result", "seen");
  for (const auto& f : findings) out += fmt::format("{:<10} {:<7} {}\n", f.check, f.ok ? "ok" : "FAILED", f.text);
  return out;
}

base::Json to_json(const std::vector<Finding>& findings) {
  base::Json list = base::Json::array();
  for (const auto& f : findings) {
    base::Json one{{"check", f.check}, {"ok", f.ok}, {"seen", f.text}};
    if (!f.ok) one["advice"] = f.advice, one["hosts"] = f.hosts;
    list.push_back(std::move(one));
  }
  return {{"schema", "aerie-preflight"}, {"version", 1}, {"ok", all_ok(findings)}, {"checks", list}};
}

}  // namespace aerie::preflight
