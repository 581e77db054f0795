// SPDX-License-Identifier: Apache-2.0
// RUN/status.json (a snapshot the running program replaces every few seconds) and what `aerie status` prints: ledger replay plus
// store, checkpoints and snapshot.
#pragma once
#include <chrono>
#include <filesystem>

#include <aerie/base/json.hpp>

namespace aerie::report {

/// Written by rank 0 of a running program, at most every `interval_s`, atomically (not fsynced).
class StatusFile {
 public:
  explicit StatusFile(const std::filesystem::path& run, double interval_s = 2.0);
  /// `snapshot`: phase, done, total, unit, rate, eta_s, loss, step, last_checkpoint_step ... "updated" is added. A failing write
  /// is logged, not thrown: the snapshot is for people, the ledger is the record.
  void update(const base::Json& snapshot, bool force = false);

 private:
  std::filesystem::path path_;
  double interval_s_;
  std::chrono::steady_clock::time_point last_{};
};

/// The whole status as documented in docs/reference/status.md; `store_counts` and `checkpoint` are filled by the caller (this
/// module sees neither io nor ckpt) and passed in as JSON, null when there is none. store_counts: {total, done, failed, missing,
/// excluded, failed_samples?: [{sample, id, reason, text}], last_commit_unix?, median_commit_interval_s?}; without failed_samples
/// the ledger's are shown. checkpoint: {step, path, time? (UTC text) or unix?}. Throws MissingInputError when `run` is no run
/// directory; a damaged ledger or snapshot is told under "problems".
base::Json build_status(const std::filesystem::path& run, const base::Json& store_counts, const base::Json& checkpoint);
/// The same for people.
std::string format_status(const base::Json& status);

}  // namespace aerie::report
