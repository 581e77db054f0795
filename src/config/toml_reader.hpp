// SPDX-License-Identifier: Apache-2.0
// A TOML file as a list of dotted keys with their lines, checked against the table of keys: real TOML through toml++.
// CLI11's own reader is not TOML (docs/reference/configuration.md).
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::config {

struct Entry {
  std::string key;                  // "train.steps"
  std::vector<std::string> values;  // one for a scalar; the elements of a list
  int line = 0;
};
/// Throws ConfigError naming `origin`, line and what is wrong: bad syntax, a repeated key, an unknown key or section (with the
/// nearest known key), a value of the wrong type.
std::vector<Entry> parse_toml(std::string_view text, const std::string& origin);

}  // namespace aerie::config
