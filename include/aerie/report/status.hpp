// SPDX-License-Identifier: Apache-2.0
// RUN/status.json (a snapshot the running program replaces every few seconds) and what `aerie status` prints: ledger replay plus
// store, checkpoints and snapshot.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <aerie/base/json.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::report {

/// Written by rank 0 of a running program, at most every `interval_s`, atomically (not fsynced).
class StatusFile {
 public:
  /// `attempt`: whose snapshot it is, 0 for a phase that makes none (it is known by its process).
  explicit StatusFile(const std::filesystem::path& run, std::int64_t attempt = 0, double interval_s = 2.0);
  /// `snapshot`: phase, done, total, unit, rate, eta_s, loss, step, a CommitClock's keys ... "updated", "attempt" and "process"
  /// are added. A failing write is logged, not thrown: the snapshot is for people, the ledger is the record.
  void update(const base::Json& snapshot, bool force = false);

 private:
  std::filesystem::path path_;
  base::Json writer_;
  double interval_s_;
  std::chrono::steady_clock::time_point last_{};
};

/// A job that is in Slurm's queue.
struct QueuedJob {
  std::string state;   // Slurm's word: PENDING, RUNNING ...
  int restarts = 0;    // how often Slurm has started it again
  std::string id;      // its number, also for a task of an array
  std::string held{};  // Slurm's word for why it is held, JobHeldUser ...; empty when it is not
};
/// The job, or the task of an array, that an id of an attempt or of a submission stands for. Of an array's own id the most active
/// task. Null when it is not in the queue.
const QueuedJob* find_job(const std::map<std::string, QueuedJob>& queue, const std::string& id);
/// What only the caller can find out: this module starts no program and sees no configuration.
struct Outside {
  /// By id as attempts carry it, "12", or "12_3" for a task of an array; jobs that are not there have left the queue. Nothing:
  /// Slurm was not asked, or did not answer.
  std::optional<std::map<std::string, QueuedJob>> queue;
  std::vector<std::string> problems;      // what could not be looked at, and why
  std::map<Phase, std::string> outdated;  // complete phases that `aerie run` would do again: why
};

/// The whole status as documented in docs/reference/status.md; `store_counts` and `checkpoint` are filled by the caller (this
/// module sees neither io nor ckpt) and passed in as JSON, null when there is none. store_counts: {total, done, failed, missing,
/// excluded, failed_samples?: [{sample, id, reason, text, decided}], last_write_unix?}; without failed_samples the ledger's are
/// shown. checkpoint: {step, path, time? (UTC text) or unix?}. Throws MissingInputError when `run` is no run directory; a damaged
/// ledger or snapshot is told under "problems".
base::Json build_status(const std::filesystem::path& run, const base::Json& store_counts, const base::Json& checkpoint,
                        const Outside& outside = {});
/// The same for people.
std::string format_status(const base::Json& status);

}  // namespace aerie::report
