// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/advice.hpp>

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace aerie::report {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == ',' || c == ':' || c == '+' || c == '@' ||
           c == '=';
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string accept_missing_command(const std::filesystem::path& run, const std::vector<std::string>& ids) {
  constexpr std::size_t most = 20;
  std::string which, list;
  bool commas = false;
  for (const auto& id : ids) {
    commas = commas || id.find(',') != std::string::npos;
    list += (list.empty() ? "" : ",") + id;
    which += (which.empty() ? "--id " : " --id ") + shell_word(id);
  }
  if (!commas) which = "--ids " + shell_word(list);
  const bool unnamed = std::any_of(ids.begin(), ids.end(), [](const auto& id) { return id.empty(); });
  if (unnamed || ids.size() > most) which = "--all-failed";
  return fmt::format("aerie accept-missing {} {} --reason TEXT", shell_word(run.string()), which);
}

}  // namespace aerie::report
