// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/json.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>

#include <fmt/format.h>

namespace aerie::base {

Json parse_json(std::string_view text, std::string_view origin) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    throw DataError(fmt::format("{}: not valid JSON: {}", origin, e.what()));
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_text(path), path.string()); }

std::string canonical(const Json& value) { return value.dump(); }  // nlohmann's objects are sorted maps

namespace {
/// True for the beginning of a JSON object whose end never reached the disk: brackets or a string are still open, or a file
/// system left zero bytes where the data should be. The bytes of a line that was once whole and was then edited or damaged close
/// all they open.
bool is_torn(std::string_view row) {
  if (row.find_first_not_of('\0') == std::string_view::npos || row.back() == '\0') return true;
  if (row.front() != '{') return false;
  std::int64_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const char c = row[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return false;
    }
  }
  return true;
}
}  // namespace

std::vector<Json> read_json_lines(const std::filesystem::path& path) {
  std::vector<Json> out;
  if (!std::filesystem::exists(path)) return out;
  const std::string text = read_text(path);
  std::size_t begin = 0, line = 0;
  while (begin < text.size()) {
    const auto end = text.find('\n', begin);
    ++line;
    if (end == std::string::npos) {  // torn; the next append closes it off
      log_warning(fmt::format("{}:{}: the last line is cut short and left out", path.string(), line));
      break;
    }
    const std::string_view row(text.data() + begin, end - begin);
    begin = end + 1;
    if (row.empty()) continue;
    Json value = Json::parse(row, nullptr, false);
    if (value.is_discarded()) {
      if (is_torn(row)) continue;  // a later append closed it off
      if (begin >= text.size()) break;
      throw DataError(fmt::format("{}:{}: not valid JSON", path.string(), line), "the file was edited or damaged");
    }
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace aerie::base
