// SPDX-License-Identifier: Apache-2.0
// Lines for people, on stderr. Rank 0 prints everything; other ranks print warnings and errors only, with rank and host.
// Results of a command go to stdout, numbers for machines to JSON lines; neither passes through here.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace aerie::base {

/// Sets the program's name ("train") and this process's place. Called once, by apps::run.
void set_log_identity(std::string_view program, int rank, int ranks);

void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

/// "2h10m", "3m05s", "12s".
std::string format_duration(double seconds);
/// "1.2 GiB".
std::string format_bytes(double bytes);
/// "71.3k", "1.20M".
std::string format_count(double value);

/// A rate-limited progress line: `12:04:07 extract 120/300 samples 40.0% 5.3k tok/s eta 1m20s`.
class Progress {
 public:
  /// `what` names the phase, `unit` what is counted ("samples"). One line at most every `interval_s`.
  Progress(std::string what, std::string unit, std::int64_t total, double interval_s = 5.0);
  /// `done` of total units, `work` in tokens so far (0: no rate); eta follows work when given (`work_total` > 0).
  void update(std::int64_t done, std::int64_t work = 0, std::int64_t work_total = 0, std::string_view extra = {});
  double elapsed_s() const;

 private:
  std::string what_, unit_;
  std::int64_t total_, first_done_ = -1, first_work_ = 0;
  double interval_s_;
  std::chrono::steady_clock::time_point start_, last_;
  bool printed_ = false;
};

}  // namespace aerie::base
