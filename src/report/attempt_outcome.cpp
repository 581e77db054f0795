// SPDX-License-Identifier: Apache-2.0
#include "attempt_outcome.hpp"

#include <aerie/base/exit_codes.hpp>
#include <aerie/base/host.hpp>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "process_state.hpp"

namespace aerie::report {
namespace {
std::string or_question_mark(const std::string& text) { return text.empty() ? "?" : text; }

/// What Slurm's queue says about an attempt on a host that cannot be looked at.
std::optional<Verdict> asked_of_slurm(const AttemptRecord& attempt, const Outside& outside) {
  if (attempt.job.empty() || !outside.queue) return std::nullopt;
  const auto it = outside.queue->find(attempt.job);
  if (it == outside.queue->end())
    return Verdict{"died", fmt::format("it recorded no end and its job {} has left Slurm's queue", attempt.job)};
  const auto& job = it->second;
  if (job.restarts > attempt.restart_count)
    return Verdict{"died", fmt::format("it recorded no end and Slurm has started its job {} again since", attempt.job)};
  if (job.state == "PENDING")
    return Verdict{"died", fmt::format("it recorded no end and its job {} waits in the queue", attempt.job)};
  return Verdict{"running",
                 fmt::format("its job {} is {}, rank 0 on {}", attempt.job, job.state, or_question_mark(attempt.host))};
}
}  // namespace

const QueuedJob* find_job(const std::map<std::string, QueuedJob>& queue, const std::string& id) {
  if (const auto it = queue.find(id); it != queue.end()) return &it->second;
  const QueuedJob* found = nullptr;
  for (auto it = queue.lower_bound(id + "_"); it != queue.end() && it->first.starts_with(id + "_"); ++it)
    if (!found || (found->state == "PENDING" && it->second.state != "PENDING")) found = &it->second;
  return found;
}

Verdict verdict_on(const RunState& state, const AttemptRecord& attempt, const Outside& outside) {
  if (attempt.exit_code >= 0) {
    const auto row = base::explain_exit(attempt.exit_code);
    return {"ended", row ? std::string(row->meaning) : "an exit code that aerie does not use"};
  }
  switch (life_of(attempt)) {
    case Life::alive:
      return {"running", fmt::format("process {} is alive", attempt.pid)};
    case Life::dead:
      return {"died", "it recorded no end and its process is gone"};
    case Life::elsewhere:
      break;
  }
  const bool superseded = std::any_of(state.attempts.begin(), state.attempts.end(), [&](const AttemptRecord& other) {
    return other.program == attempt.program && other.number > attempt.number &&
           (attempt.job.empty() ? other.host == attempt.host && other.pid_namespace == attempt.pid_namespace
                                : other.job == attempt.job);
  });
  if (superseded) return {"died", "it recorded no end and was started again"};
  if (auto known = asked_of_slurm(attempt, outside)) return *known;
  if (attempt.host == base::host_name())
    return {"unknown",
            "no end is recorded; it ran in another PID namespace of this host (a container?), which cannot be seen from here"};
  return {"unknown",
          fmt::format("no end is recorded; it ran on {}, which this host cannot look at", or_question_mark(attempt.host))};
}

}  // namespace aerie::report
