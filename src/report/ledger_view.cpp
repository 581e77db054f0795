// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/ledger_view.hpp>

#include <aerie/base/exit_codes.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>

#include <span>

#include <fmt/format.h>

#include "one_line.hpp"

namespace aerie::report {
namespace {
using base::Json;

std::string plain(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? "?" : one_line(*it);
}
/// ": what it holds", empty when there is nothing.
std::string tail_of(const Json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end() || it->empty()) return {};
  const auto text = one_line(*it);
  return text.empty() ? text : ": " + text;
}

std::string attempt(const Json& line) {
  std::string out = fmt::format("{:>3} {} ", plain(line, "number"), text_of(line, "program"));
  if (text_of(line, "event") == "begin") {
    const Json process = line.value("process", Json::object()), details = line.value("details", Json::object());
    out += fmt::format("begins on {}", text_of(process, "host"));
    if (details.is_object() && details.contains("ranks")) out += fmt::format(", {} ranks", plain(details, "ranks"));
    if (const auto job = text_of(process, "job"); !job.empty()) out += fmt::format(", job {}", job);
    if (const auto n = process.value("restart_count", Json{}); n.is_number() && n != 0)
      out += fmt::format(" restart {}", n.dump());
    return out;
  }
  const auto code = line.find("exit_code");
  const auto row = code != line.end() && code->is_number_integer() ? base::explain_exit(code->get<int>()) : std::nullopt;
  out += fmt::format("ends {}{}", plain(line, "exit_code"), row ? fmt::format(" ({})", row->name) : "");
  if (const auto reason = text_of(line, "reason"); !reason.empty() && reason != "done") out += ": " + one_line(Json(reason));
  return out;
}

std::string submission(const Json& line) {
  const Json details = line.value("details", Json::object());
  if (details.contains("replaces"))
    return fmt::format("job {} in place of {}", plain(details, "job"), plain(details, "replaces"));
  std::string out;
  for (const auto& j : details.value("jobs", Json::array()))
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", text_of(j, "phase"), text_of(j, "job"));
  return out;
}

std::string event(const std::string& kind, const Json& line) {
  if (kind == "attempt") return attempt(line);
  if (kind == "submit") return submission(line);
  if (kind == "phase") return fmt::format("{} {}{}", text_of(line, "phase"), text_of(line, "state"), tail_of(line, "evidence"));
  if (kind == "todo")
    return fmt::format("[{}] {} ({})", text_of(line, "priority"), one_line(line.value("content", Json{})),
                       text_of(line, "status"));
  if (kind == "sample-failed") {
    const auto why = one_line(Json(text_of(line, "text")));
    return fmt::format("{} (sample {}): {}{}", text_of(line, "id"), plain(line, "sample"), text_of(line, "reason"),
                       why.empty() ? "" : ": " + why);
  }
  if (kind == "decision" || kind == "evidence") return text_of(line, "what") + tail_of(line, "details");
  if (kind == "checkpoint") return fmt::format("step {} {}", plain(line, "step"), text_of(line, "path"));
  Json rest = line;
  for (const char* shown : {"time", "kind"}) rest.erase(shown);
  return one_line(rest);
}
}  // namespace

const std::vector<std::string>& ledger_kinds() {
  static const std::vector<std::string> all{"attempt",  "phase", "evidence", "sample-failed",
                                            "decision", "todo",  "submit",   "checkpoint"};
  return all;
}

std::string format_ledger_line(const Json& line) {
  if (!line.is_object()) return one_line(line);
  const auto kind = text_of(line, "kind");
  return fmt::format("{:<24}  {:<13} {}", text_of(line, "time"), kind, event(kind, line));
}

std::vector<Json> LedgerTail::read() {
  std::vector<Json> out;
  const auto file = base::open_read(file_);
  const auto size = base::file_size(file);
  if (size < offset_) {
    base::log_warning(file_.string() + " became shorter: read from its start");
    offset_ = lines_ = 0;
    begun_.clear();
  }
  std::string fresh(static_cast<std::size_t>(size - offset_), '\0');
  base::pread_full(file, std::as_writable_bytes(std::span(fresh)), offset_);
  offset_ = size;
  begun_ += fresh;
  std::size_t begin = 0;
  for (std::size_t end; (end = begun_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++lines_;
    const std::string_view row(begun_.data() + begin, end - begin);
    if (row.empty()) continue;
    auto value = Json::parse(row, nullptr, false);
    if (value.is_discarded())
      base::log_warning(fmt::format("{}:{}: not a whole line, passed over", file_.string(), lines_));
    else
      out.push_back(std::move(value));
  }
  begun_.erase(0, begin);
  return out;
}

}  // namespace aerie::report
