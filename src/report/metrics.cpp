// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/metrics.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>

#include <string>

#include <fcntl.h>
#include <fmt/format.h>

namespace aerie::report {
namespace {
/// True for a line that stays: whole, and of no step above `last_step`. A line without a step belongs to the start and goes with
/// -1.
bool stays(std::string_view row, std::int64_t last_step) {
  const auto value = base::Json::parse(row, nullptr, false);
  if (!value.is_object()) return false;
  const auto step = value.find("step");
  if (step == value.end() || !step->is_number()) return last_step >= 0;
  return step->get<double>() <= static_cast<double>(last_step);
}
}  // namespace

Metrics::Metrics(const std::filesystem::path& path, std::int64_t last_step) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const std::string text = base::read_text(path);
    std::string kept;
    std::int64_t cut = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const auto end = text.find('\n', begin);
      const bool whole = end != std::string::npos;
      const auto row = std::string_view(text).substr(begin, whole ? end - begin : std::string::npos);
      if (whole && stays(row, last_step))
        kept.append(row).push_back('\n');
      else
        ++cut;
      begin = whole ? end + 1 : text.size();
    }
    if (cut != 0) {
      base::publish_text(path, kept);
      base::log_info(
          fmt::format("{}: {} lines after step {} cut; those steps are made again", path.filename().string(), cut, last_step));
    }
  }
  file_ = base::open_file(path, O_WRONLY | O_CREAT | O_APPEND);
}

void Metrics::write(const base::Json& line) {
  const auto text = line.dump(-1, ' ', false, base::Json::error_handler_t::replace) + '\n';
  base::write_full(file_, std::as_bytes(std::span(text)));
}

}  // namespace aerie::report
