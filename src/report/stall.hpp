// SPDX-License-Identifier: Apache-2.0
// The "stall" object of the status: who does not get on, since when, and what its processes wait for.
#pragma once
#include <aerie/report/ledger.hpp>
#include <aerie/report/status.hpp>

namespace aerie::report {

/// Null unless whoever wrote `snapshot` may be at work and has committed nothing for too long (commit_clock.hpp). `attempts`: of
/// the status, with their outcomes. `counts`: the store's, for extraction, whose files several jobs write.
base::Json stall_json(const std::filesystem::path& run, const RunState& state, const base::Json& attempts,
                      const base::Json& snapshot, const base::Json& counts, const Outside& outside, double now);

}  // namespace aerie::report
