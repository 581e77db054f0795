// SPDX-License-Identifier: Apache-2.0
// Slurm, as far as `aerie` asks it: what a command printed, and which jobs are in the queue.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <aerie/report/ledger.hpp>
#include <aerie/report/status.hpp>

namespace aerie::apps {

struct CommandEnd {
  int code = 0;
  std::string out;
};
/// Runs `words` with stdout caught, and stderr too when asked to. Throws IoError.
CommandEnd capture_output(const std::vector<std::string>& words, bool with_stderr = false);

using Queue = std::map<std::string, report::QueuedJob>;  // by id: "12", and "12_3" for a task of an array

/// Which of a run's jobs are in the queue: those of the newest submission, and those of attempts without an end. One call of
/// squeue, with a time limit of 5 s; none when there is nothing to ask. Nothing when squeue is not there or does not answer.
std::optional<Queue> jobs_in_queue(const report::RunState& state);

}  // namespace aerie::apps
