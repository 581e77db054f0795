// SPDX-License-Identifier: Apache-2.0
// Is the process of an attempt, or of a recovery, still alive, as far as this host can tell, and what does it do?
#pragma once
#include <optional>
#include <string>

#include <aerie/report/holds.hpp>
#include <aerie/report/ledger.hpp>
#include <aerie/report/utc.hpp>

namespace aerie::report {

enum class Life { alive, dead, elsewhere };  // elsewhere: it ran on another host, nothing can be said
Life life_of(const AttemptRecord& attempt);
Life life_of(const Holder& recovery);

struct ProcessNow {
  std::string state;      // one letter, as ps shows it
  std::string waits_for;  // "D (...) in jbd2_log_wait_commit"
};
/// Of a process of this host and boot; nothing when it is gone or the pid is another's by now.
std::optional<ProcessNow> look_at_process(std::int64_t pid, std::int64_t start_ticks);

}  // namespace aerie::report
