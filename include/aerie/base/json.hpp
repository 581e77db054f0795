// SPDX-License-Identifier: Apache-2.0
// JSON helpers on nlohmann_json: parsing with file and line in the error, canonical text (sorted keys, no spaces) for hashing.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace aerie::base {

using Json = nlohmann::json;

/// Throws DataError naming `origin` (file, or "file:line") and the parser's own text.
Json parse_json(std::string_view text, std::string_view origin);
/// Throws MissingInputError or DataError.
Json read_json(const std::filesystem::path& path);
/// Sorted keys, no spaces: the form that hashes are taken of.
std::string canonical(const Json& value);

/// All complete lines of a JSON-lines file. A last line without a newline, or that does not parse, is dropped (a torn
/// write); so is a torn one that a later append closed off (an object without its end, or zero bytes). Any other bad line is a
/// DataError with its number. A file that is not there has no lines.
std::vector<Json> read_json_lines(const std::filesystem::path& path);

}  // namespace aerie::base
