// SPDX-License-Identifier: Apache-2.0
// Is the process of an attempt, or of a recovery, still alive, as far as this host can tell, and what does it do?
#pragma once
#include <optional>
#include <string>

#include <aerie/node/process.hpp>
#include <aerie/report/holds.hpp>
#include <aerie/report/ledger.hpp>
#include <aerie/report/utc.hpp>

namespace aerie::report {

/// elsewhere: nothing can be said, for it ran on another host, or in a PID namespace of this one that cannot be seen from here.
enum class Life { alive, dead, elsewhere };
Life life_of(const AttemptRecord& attempt);
Life life_of(const Holder& recovery);

struct ProcessNow {
  std::string state;      // one letter, as ps shows it
  std::string waits_for;  // "D (...) in jbd2_log_wait_commit"
};
/// Of a process that node::find() has found.
ProcessNow what_it_does(const node::Process& process);

}  // namespace aerie::report
