// SPDX-License-Identifier: Apache-2.0
// The one table of configuration keys: name, where the value lives, what is allowed, what it is for, whether it alters the
// trained bits. Options, file reader, checks, JSON, hash and the commented file are all driven by it; nothing is listed twice.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <aerie/config/config.hpp>

namespace aerie::config {

using Value =
    std::variant<std::int64_t*, std::uint64_t*, double*, bool*, std::string*, std::filesystem::path*, std::vector<std::int32_t>*,
                 std::vector<std::int64_t>*, std::vector<double>*, std::vector<std::string>*, std::array<double, 2>*>;

/// What a value (each element of a list) must hold to.
struct Rule {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool open_min = false;             // the value must be above `min`, not at it
  std::vector<std::string> choices;  // for texts; empty: any
};

struct Key {
  std::string name;     // "train.steps"
  Value value;          // points into the Config given to keys()
  std::string comment;  // one line
  Rule rule;
  bool alters_result = false;
};

/// All keys, grouped by section, in the order of the commented file.
std::vector<Key> keys(Config& config);

struct SectionInfo {
  std::string_view name, comment;
};
const std::vector<SectionInfo>& sections();

/// The value as it stands in a TOML file: quoted, in brackets, floating-point numbers with point or exponent.
std::string toml_text(const Value& value);
/// The value as a command-line argument: no quotes, lists joined by commas.
std::string flag_text(const Value& value);
base::Json json_value(const Value& value);

}  // namespace aerie::config
