// SPDX-License-Identifier: Apache-2.0
#include "shell_word.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace aerie::apps {

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
