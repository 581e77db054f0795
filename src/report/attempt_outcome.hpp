// SPDX-License-Identifier: Apache-2.0
// How an attempt ended, or where it is: from its end line, else from its process on this host, else from Slurm's queue.
#pragma once
#include <string>

#include <aerie/report/ledger.hpp>
#include <aerie/report/status.hpp>

namespace aerie::report {

struct Verdict {
  std::string outcome;      // ended, running, died, unknown
  std::string explanation;  // one sentence
};
Verdict verdict_on(const RunState& state, const AttemptRecord& attempt, const Outside& outside);

}  // namespace aerie::report
