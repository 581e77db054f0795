// SPDX-License-Identifier: Apache-2.0
// RUN/ledger.jsonl: the append-only record of a run (docs/reference/ledger.md). One JSON object a line, each with "time", "kind"
// and the kind's fields; safe against a torn last line. Only one process of a program appends (rank 0).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::report {

/// In the order they run.
enum class Phase { prepare, preflight, extract, verify, vocab, train, eval, export_, bench };
std::string_view phase_name(Phase phase);      // "export" for export_
Phase phase_from_name(std::string_view name);  // throws DataError
enum class PhaseState { pending, running, complete, interrupted, failed };
std::string_view phase_state_name(PhaseState state);

struct FailedSample {
  std::int64_t sample = 0;
  std::string id, reason, text;
  bool decided = false;  // an accept-missing decision after the failure names it
};

class Ledger {
 public:
  explicit Ledger(std::filesystem::path run) : path_(std::move(run) / "ledger.jsonl") {}
  const std::filesystem::path& path() const { return path_; }

  /// kind "attempt", event "begin": number, program, process identity, version; `details`: ranks, hosts, config_hash,
  /// loaded_step, done (work done so far, for the guard) ... Returns the number: one more than any before, whatever the program.
  std::int64_t attempt_begin(const std::string& program, const base::Json& details);
  /// event "end": exit code, reason; `details` may hold "progress": true and "done".
  void attempt_end(std::int64_t number, const std::string& program, int exit_code, const std::string& reason,
                   const base::Json& details = {});
  /// A phase moves to `state`. `complete` demands evidence (throws Bug when empty).
  void phase(Phase phase, PhaseState state, const base::Json& evidence = {});
  void evidence(const std::string& what, const base::Json& details);
  /// "accept-missing": details {"ids": [...], "reason", "by"}. "fresh-start", "reset-attempts": details {"program"} optional.
  void decision(const std::string& what, const base::Json& details);
  void sample_failed(std::int64_t sample, const std::string& id, const std::string& reason, const std::string& text);
  /// The same of many at once: one write and one fsync, whatever their number.
  void samples_failed(std::span<const FailedSample> samples);
  void todo(const std::string& content, const std::string& priority, const std::string& status, const base::Json& details = {});
  /// kind "submit": details {"jobs": [{"phase", "job", "script"}], "array"}; or {"job", "replaces"}: one job took another's
  /// place.
  void submitted(const base::Json& details);
  /// `details`: "save_s", "step_s", what they were when it was written.
  void checkpoint_published(std::int64_t step, const std::string& path, const std::string& manifest_hash,
                            const base::Json& details = base::Json::object());

  /// All whole lines; none when there is no file. Throws DataError naming the line when one in the middle is damaged.
  std::vector<base::Json> read() const;

 private:
  base::Json stamped(const std::string& kind, base::Json line) const;
  void append(const std::string& kind, base::Json line);
  std::filesystem::path path_;
  std::int64_t attempt_ = 0;  // of attempt_begin: the lines that follow carry it
  std::string program_;
};

struct AttemptRecord {
  std::int64_t number = 0;
  std::string program, begin, end, host, job;
  std::int64_t ranks = 0;
  int exit_code = -1;  // -1: no end line, the attempt died (or still runs)
  std::string reason, boot_id;
  int restart_count = 0;  // of the Slurm job
  std::int64_t pid = 0, start_ticks = 0;
  std::int64_t pid_namespace = 0;  // 0: not recorded
  bool progress = false;
  base::Json begin_details, end_details;
};
struct PhaseRecord {
  PhaseState state = PhaseState::pending;
  std::string since;
  base::Json evidence;
  std::size_t line = 0;  // which record of the ledger set it: their order is what came first, whatever the hosts' clocks say
};
/// A job of the newest submission.
struct SubmittedJob {
  std::string phase, job, script;
};
/// What the ledger's lines add up to.
struct RunState {
  std::map<Phase, PhaseRecord> phases;
  std::map<Phase, std::vector<PhaseRecord>> completions;  // every time a phase became complete, oldest first
  std::vector<AttemptRecord> attempts;
  std::vector<FailedSample> failed;          // by sample, newest line wins
  std::vector<base::Json> decisions, todos;  // todos: by content, newest line wins
  std::vector<SubmittedJob> jobs;
  std::int64_t last_checkpoint_step = -1;
  std::string last_checkpoint_time;
};
/// A phase counts as complete only through a line that carries evidence. A decision covers the failures recorded before it that
/// it names, by id or number; one that fails again for another reason has to be decided again. Throws DataError naming the line
/// when a field has a wrong type.
RunState replay(const std::vector<base::Json>& lines);

/// The no-progress guard of `program`: attempts in a row, newest first, that died or failed without progress. Progress is
/// "progress": true in the end line, a checkpoint of a higher step than any published before, or more "done" than any attempt
/// before had. An attempt that ended 0, or that made progress, ends the row; one that ended 75 without progress counts neither
/// way; nor does the calling process's own. A "reset-attempts" decision clears all before it. `done_now`: work done by now, where
/// the caller can count it, so that an attempt that died after commits gets credit. `job`, when it is a task of a job array
/// ("12_3"): the attempts of the array's other tasks, which run at the same time, are passed over.
std::int64_t attempts_without_progress(const std::vector<base::Json>& lines, const std::string& program,
                                       std::optional<std::int64_t> done_now = std::nullopt, const std::string& job = {});

}  // namespace aerie::report
