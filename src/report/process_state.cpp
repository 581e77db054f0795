// SPDX-License-Identifier: Apache-2.0
#include "process_state.hpp"

#include <aerie/base/host.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

namespace aerie::report {

namespace {
template <class Process>
Life life_of_process(const Process& p) {
  const auto self = base::this_process();
  if (p.host != self.host) return Life::elsewhere;
  if (p.boot_id != self.boot_id) return Life::dead;  // the host was started again since
  switch (node::find({p.pid, p.start_ticks, p.pid_namespace}).sight) {
    case node::Sight::there:
      return Life::alive;
    case node::Sight::gone:
      return Life::dead;
    case node::Sight::hidden:
      break;
  }
  return Life::elsewhere;
}
}  // namespace

Life life_of(const AttemptRecord& attempt) { return life_of_process(attempt); }
Life life_of(const Holder& recovery) { return life_of_process(recovery); }

ProcessNow what_it_does(const node::Process& process) {
  const auto pid = process.pid;
  ProcessNow out{std::string(1, process.state), node::waits_for(pid)};
  // The first thread may only wait for another one, which hangs in the kernel.
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    const auto thread = std::atoll(task.path().filename().c_str());
    const auto waits = thread == pid ? std::string() : node::waits_for(thread);
    if (waits.starts_with("D")) out.waits_for += fmt::format("; thread {}: {}", thread, waits);
  }
  return out;
}

std::optional<double> parse_utc(const std::string& text) {
  std::tm tm{};
  double seconds = 0;
  char zone = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%lf%c", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                  &seconds, &zone) != 7 ||
      zone != 'Z')
    return std::nullopt;
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  return static_cast<double>(::timegm(&tm)) + seconds;
}

std::string utc_text(double unix_s) {
  const auto ms = static_cast<std::int64_t>(unix_s * 1000);
  const std::time_t s = static_cast<std::time_t>(ms / 1000);
  std::tm tm{};
  ::gmtime_r(&s, &tm);
  char text[32];
  const auto n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
  return std::string(text, n) + fmt::format(".{:03}Z", ms % 1000);
}

}  // namespace aerie::report
