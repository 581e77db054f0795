// SPDX-License-Identifier: Apache-2.0
#include "one_line.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace aerie::report {
namespace {
using base::Json;

/// A hash is recognised by its first characters, and the line stays readable.
std::string shortened(const std::string& text) {
  constexpr std::size_t shown = 12;
  const auto colon = text.find(':');
  const auto begin = colon == std::string::npos ? 0 : colon + 1;
  const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  const bool hash =
      text.size() - begin >= 32 && std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_hex);
  return hash ? text.substr(0, begin + shown) + ".." : text;
}

std::string flat(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return text;
}

/// Preflight's table in short: "15 PASS, 1 FAIL (gpu-memory)".
std::string checks_in_short(const Json& checks) {
  std::map<std::string, std::vector<std::string>> by_result;
  for (const auto& c : checks) by_result[text_of(c, "result")].push_back(text_of(c, "check"));
  std::string out;
  for (const auto* result : {"PASS", "WARN", "FAIL"}) {
    const auto& names = by_result[result];
    if (names.empty()) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", names.size(), result);
    if (std::string_view(result) != "PASS") out += fmt::format(" ({})", fmt::join(names, ", "));
  }
  return out;
}
bool are_checks(const Json& value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](const Json& c) {
    return c.is_object() && c.contains("check") && c.contains("result");
  });
}
}  // namespace

std::string one_line(const Json& value) {
  if (value.is_string()) return flat(shortened(value.get<std::string>()));
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (value.is_array() && are_checks(value)) return checks_in_short(value);
  if (value.is_array()) {
    constexpr std::size_t shown = 8;
    std::string out;
    for (std::size_t i = 0; i < std::min(shown, value.size()); ++i)
      out += fmt::format("{}{}", i == 0 ? "" : ", ", one_line(value[i]));
    return fmt::format("[{}{}]", out, value.size() > shown ? fmt::format(" and {} more", value.size() - shown) : "");
  }
  if (!value.is_object()) return value.dump();
  std::string out;
  for (const auto& [key, item] : value.items())
    if (key != "inputs")  // what `aerie run` compares; nothing for people
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, one_line(item));
  return out;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string{};
}

}  // namespace aerie::report
