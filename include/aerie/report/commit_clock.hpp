// SPDX-License-Identifier: Apache-2.0
// When a running program last got something done, and how long that usually takes: what STALLED is told from. Written into
// status.json by the program, judged by whoever reads it, since a program that hangs judges nothing.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include <aerie/base/json.hpp>

namespace aerie::report {

class CommitClock {
 public:
  /// `done`: what earlier attempts left, in the unit of advance(). `now`: seconds since 1970.
  CommitClock(std::int64_t done, double now);
  /// More `done` than ever before is a commit; the rest is ignored.
  void advance(std::int64_t done, double now);
  /// What begins now has no commits of its own and takes as long as it takes (a validation between two steps): the time until the
  /// next commit says nothing about the usual interval.
  void pause(double now);
  /// Adds began_unix, last_commit_unix, median_commit_interval_s and paused.
  void add_to(base::Json& snapshot) const;
  /// Of the last 64 intervals; nothing before two were seen: one says nothing about what is usual.
  std::optional<double> median_interval_s() const;

 private:
  std::int64_t done_;
  double began_;
  std::optional<double> last_;  // commit of this program
  bool paused_ = false;
  std::array<double, 64> intervals_{};  // a ring: the newest replaces the oldest
  std::size_t seen_ = 0;
};

/// What a snapshot that holds a clock says at `now`. `last_write_unix`: another witness (the store's files), where there is one.
struct Stall {
  bool stalled = false;
  double since_unix = 0;                    // the last commit; before the first one, when the program or the pause began
  std::optional<double> median_interval_s;  // nothing: not known, or not to be used
  double limit_s = 0;                       // the silence that is allowed
};
/// Nothing when the snapshot holds no clock. The limit is ten times the median interval, but never less than least_stall_s, below
/// which the snapshot's own age hides everything; without a usable median it is patience_s.
std::optional<Stall> judge(const base::Json& snapshot, double now, std::optional<double> last_write_unix = std::nullopt);
inline constexpr double least_stall_s = 10, patience_s = 3600;

}  // namespace aerie::report
