// SPDX-License-Identifier: Apache-2.0
#include "process_state.hpp"

#include <aerie/base/host.hpp>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

namespace aerie::report {
namespace {
/// Field 22 of /proc/PID/stat, and whether the process is more than a zombie.
struct ProcStat {
  std::int64_t start_ticks = 0;
  bool running = false;
};
std::optional<ProcStat> read_stat(std::int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto close = text.rfind(')');  // the command may hold spaces and brackets
  if (close == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  ProcStat out;
  for (int i = 3; i <= 22 && rest >> field; ++i) {
    if (i == 3) out.running = field != "Z" && field != "X";
    if (i == 22) out.start_ticks = std::stoll(field);
  }
  return out;
}
}  // namespace

Life life_of(const AttemptRecord& attempt) {
  const auto self = base::this_process();
  if (attempt.host != self.host) return Life::elsewhere;
  if (attempt.boot_id != self.boot_id) return Life::dead;  // the host was started again since
  const auto stat = read_stat(attempt.pid);
  return stat && stat->running && stat->start_ticks == attempt.start_ticks ? Life::alive : Life::dead;
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

}  // namespace aerie::report
