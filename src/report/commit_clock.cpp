// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/commit_clock.hpp>

#include <algorithm>
#include <vector>

namespace aerie::report {
namespace {
using base::Json;

std::optional<double> number(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
}
}  // namespace

CommitClock::CommitClock(std::int64_t done, double now) : done_(done), began_(now) {}

void CommitClock::advance(std::int64_t done, double now) {
  if (done <= done_) return;
  done_ = done;
  if (last_ && !paused_) intervals_[seen_++ % intervals_.size()] = std::max(0.0, now - *last_);
  last_ = now;
  paused_ = false;
}

void CommitClock::pause(double now) {
  paused_ = true;
  if (last_) last_ = now;
}

std::optional<double> CommitClock::median_interval_s() const {
  const auto n = std::min(seen_, intervals_.size());
  if (n < 2) return std::nullopt;
  std::vector<double> sorted(intervals_.begin(), intervals_.begin() + static_cast<std::ptrdiff_t>(n));
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void CommitClock::add_to(Json& snapshot) const {
  const auto median = median_interval_s();
  snapshot["began_unix"] = began_;
  snapshot["last_commit_unix"] = last_ ? Json(*last_) : Json{};
  snapshot["median_commit_interval_s"] = median ? Json(*median) : Json{};
  snapshot["paused"] = paused_;
}

std::optional<Stall> judge(const Json& snapshot, double now, std::optional<double> last_write_unix) {
  if (!snapshot.is_object()) return std::nullopt;
  const auto last = number(snapshot, "last_commit_unix"), began = number(snapshot, "began_unix");
  if (!last && !began) return std::nullopt;
  Stall out;
  out.since_unix = std::max(last ? *last : *began, last_write_unix.value_or(0.0));
  const auto paused = snapshot.find("paused");
  if (last && (paused == snapshot.end() || *paused != true)) out.median_interval_s = number(snapshot, "median_commit_interval_s");
  out.limit_s = out.median_interval_s ? std::max(least_stall_s, 10 * *out.median_interval_s) : patience_s;
  out.stalled = now - out.since_unix > out.limit_s;
  return out;
}

}  // namespace aerie::report
