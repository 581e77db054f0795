// SPDX-License-Identifier: Apache-2.0
// Rules from the most urgent down; the first that fits is the answer.
#include "next_step.hpp"

#include <aerie/base/exit_codes.hpp>
#include <aerie/report/advice.hpp>

#include <optional>

#include <fmt/format.h>

namespace aerie::report {
namespace {
using base::Json;

/// "complete" only when it still holds.
std::string state_of(const Json& status, std::string_view phase) {
  for (const auto& p : status.at("phases"))
    if (p.at("phase") == phase) return p.at("outdated").is_null() ? p.at("state").get<std::string>() : "outdated";
  return "pending";
}
Json step(std::string command, std::string why) { return {{"command", std::move(command)}, {"why", std::move(why)}}; }

std::optional<Json> wait_for_running(const std::string& run, const Json& status) {
  const Json& attempts = status.at("attempts");
  const auto watch = fmt::format("aerie status {} --watch", run);
  const Json& stall = status.at("stall");
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
    if (it->at("outcome") != "running") continue;
    const auto program = it->at("program").get<std::string>();
    if (stall.is_null()) return step(watch, program + " is running");
    const auto job = it->at("job").get<std::string>();
    return step(
        watch,
        fmt::format("{} is STALLED: see what its processes wait for; if that does not end, end it ({}) and run again", program,
                    job.empty() ? fmt::format("kill {} on {}", stall.at("pid").dump(), it->at("host").get<std::string>())
                                : "scancel " + job));
  }
  return std::nullopt;
}

/// A run that was submitted goes on through Slurm.
std::string go_on(const std::string& run, const Json& status) {
  return fmt::format("aerie {} {}", status.at("jobs").empty() ? "run" : "submit", run);
}

/// Jobs of the run that will do by themselves what is left, unless the first of them is held: the others wait for it.
std::optional<Json> wait_for_jobs(const std::string& run, const Json& status) {
  std::string ids;
  Json first;
  for (const auto& j : status.at("jobs")) {
    if (!j.at("state").is_string() || j.at("state") == "ENDED") continue;
    if (ids.empty()) first = j;
    ids += (ids.empty() ? "" : ",") + j.at("job").get<std::string>();
  }
  if (ids.empty()) return std::nullopt;
  const auto why = [&] {
    return fmt::format("job {} is {}", first.at("job").get<std::string>(), first.at("holder").get<std::string>());
  };
  if (first.at("held") == "ended-recovery") return step(fmt::format("aerie recover {} --submit", run), why());
  if (first.at("held") == "person") return step("scontrol release " + first.at("job").get<std::string>(), why());
  return step("squeue -j " + ids, "the run's jobs are in Slurm's queue: wait for them");
}

/// Failed samples that nobody decided about, named where they are few.
std::optional<Json> decide_about_failed(const std::filesystem::path& run, const Json& status) {
  const Json& samples = status.at("samples");
  if (samples.is_null() || samples.at("missing").get<std::int64_t>() > 0 || state_of(status, "extract") == "complete")
    return std::nullopt;
  std::vector<std::string> ids;
  for (const auto& f : samples.at("failed_samples"))
    if (!f.at("decided").get<bool>()) ids.push_back(f.at("id").get<std::string>());
  if (ids.empty()) return std::nullopt;
  return step(accept_missing_command(run, ids),
              fmt::format("{} failed {} for a decision: accept, or see docs/recovery.md for what can be tried again", ids.size(),
                          ids.size() == 1 ? "sample waits" : "samples wait"));
}

/// Why it is not all done: how the last attempt ended, or what no longer holds.
std::string reason_to_run(const Json& status) {
  for (const auto& p : status.at("phases"))
    if (p.at("outdated").is_string())
      return fmt::format("{} has to be done again: {}", p.at("phase").get<std::string>(), p.at("outdated").get<std::string>());
  const Json& attempts = status.at("attempts");
  if (attempts.empty()) return "phases are left to do";
  const auto& last = attempts.back();
  const auto program = last.at("program").get<std::string>();
  if (last.at("outcome") == "died") return program + " died: look for the cause in the log";
  if (last.at("outcome") == "unknown")
    return fmt::format("phases are left to do, unless {} is still at work on {}", program, last.at("host").get<std::string>());
  const auto& code = last.at("exit_code");
  const auto row = code.is_number() ? base::explain_exit(code.get<int>()) : std::nullopt;
  if (row && row->code != base::ExitCode::done) return fmt::format("{} ended {}: {}", program, code.get<int>(), row->next);
  return "phases are left to do";
}
/// Verification may also fail for samples that are missing or undecided: then there is nothing to mend.
bool damage_was_found(const Json& status) {
  for (const auto& p : status.at("phases"))
    if (p.at("phase") == "verify" && p.at("state") == "failed" && p.at("evidence").is_object())
      return p.at("evidence").value("damaged", 0) > 0;
  return false;
}
}  // namespace

Json next_step(const std::filesystem::path& run_path, const Json& status) {
  const std::string run = shell_word(run_path.string());
  const Json& attempts = status.at("attempts");
  if (auto wait = wait_for_running(run, status)) return *wait;
  if (!status.at("problems").empty())
    return step(fmt::format("aerie recover {} --dry-run", run),
                "the record has a problem: " + status.at("problems").front().get<std::string>());
  if (auto wait = wait_for_jobs(run, status)) return *wait;
  std::error_code ignored;
  if (std::filesystem::exists(run_path / "stop", ignored))
    return step(fmt::format("rm {} && {}", shell_word((run_path / "stop").string()), go_on(run, status)),
                "the stop file holds the run");
  if (!attempts.empty() && attempts.back().at("exit_code") == static_cast<int>(base::ExitCode::no_progress))
    return step(go_on(run, status) + " --reset-attempts", "three attempts made no progress: repair the cause first");
  if (damage_was_found(status)) return step(fmt::format("aerie recover {}", run), "verification found damage");
  if (auto decision = decide_about_failed(run_path, status)) return *decision;
  bool all = true;
  for (const auto phase : {"prepare", "extract", "train", "eval", "export"}) all = all && state_of(status, phase) == "complete";
  if (all) return step("", "all phases are complete");
  return step(go_on(run, status), reason_to_run(status));
}

}  // namespace aerie::report
