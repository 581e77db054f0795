// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/log.hpp>

#include <aerie/base/host.hpp>

#include <algorithm>
#include <ctime>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

namespace aerie::base {
namespace {
struct Identity {
  std::string program = "aerie";
  int rank = 0, ranks = 1;
};
Identity& identity() {
  static Identity id;
  return id;
}
void print(std::string_view level, std::string_view text) {
  const Identity& id = identity();
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  ::localtime_r(&now, &tm);
  std::string line = fmt::format("{:02}:{:02}:{:02} {} ", tm.tm_hour, tm.tm_min, tm.tm_sec, id.program);
  if (!level.empty()) line += fmt::format("{}: ", level);
  if (id.rank != 0) line += fmt::format("rank {} {}: ", id.rank, host_name());
  line += text;
  line += '\n';
  // One write, so that lines of several ranks do not mix.
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, line.data(), line.size());
}
}  // namespace

void set_log_identity(std::string_view program, int rank, int ranks) { identity() = {std::string(program), rank, ranks}; }
void log_info(std::string_view text) {
  if (identity().rank == 0) print("", text);
}
void log_warning(std::string_view text) { print("warning", text); }
void log_error(std::string_view text) { print("error", text); }

std::string format_duration(double seconds) {
  const auto s = static_cast<long>(std::min(1e12, std::max(0.0, seconds)) + 0.5);
  if (s >= 86400) return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}
std::string format_bytes(double bytes) {
  for (const char* unit : {"B", "KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024 || std::string_view(unit) == "TiB")
      return fmt::format("{:.{}f} {}", bytes, bytes < 10 && unit[0] != 'B' ? 1 : 0, unit);
    bytes /= 1024;
  }
  return {};
}
std::string format_count(double value) {
  if (value >= 1e9) return fmt::format("{:.2f}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  if (value >= 1e3) return fmt::format("{:.2f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

Progress::Progress(std::string what, std::string unit, std::int64_t total, double interval_s)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      interval_s_(interval_s),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

double Progress::elapsed_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

void Progress::update(std::int64_t done, std::int64_t work, std::int64_t work_total, std::string_view extra) {
  if (first_done_ < 0) {
    first_done_ = done;
    first_work_ = work;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool end = done >= total_;
  if (!end && std::chrono::duration<double>(now - last_).count() < interval_s_) return;
  if (end && printed_ && std::chrono::duration<double>(now - last_).count() < 0.01) return;
  last_ = now;
  printed_ = true;
  const double s = std::max(1e-9, elapsed_s());
  std::string line = fmt::format("{}{}/{} {} {:.1f}%", what_.empty() ? "" : what_ + " ", done, total_, unit_,
                                 total_ > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total_) : 100.0);
  if (!extra.empty()) line += fmt::format(" {}", extra);
  if (work > 0) line += fmt::format(" {} tok/s", format_count(static_cast<double>(work - first_work_) / s));
  const double made = work_total > 0 ? static_cast<double>(work - first_work_) : static_cast<double>(done - first_done_);
  const double left = work_total > 0 ? static_cast<double>(work_total - work) : static_cast<double>(total_ - done);
  if (!end && made > 0) line += fmt::format(" eta {}", format_duration(left * s / made));
  log_info(line);
}

}  // namespace aerie::base
