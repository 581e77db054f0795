// SPDX-License-Identifier: Apache-2.0
// Which jobs a recovery holds in Slurm's queue, as the ledger tells it: by that they are told from those that a person holds,
// also when the recovery was killed before it could let them go.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::report {

inline constexpr std::string_view jobs_held = "jobs-held", jobs_let_go = "jobs-let-go";  // evidence

/// A recovery that holds jobs.
struct Holder {
  std::string since, host, boot_id;
  std::int64_t pid = 0, start_ticks = 0, pid_namespace = 0;
};
/// By job, "12", or "12_3" for a task of an array; one that was let go since is not there, nor its array as a whole.
using Holds = std::map<std::string, Holder>;

/// Throws DataError naming the line when a field has a wrong type.
Holds holds_of_recoveries(const std::vector<base::Json>& lines);
/// Who holds a job, or the task of an array that is held as a whole; null: no recovery does.
const Holder* find_holder(const Holds& holds, const std::string& job);

}  // namespace aerie::report
