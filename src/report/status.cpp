// SPDX-License-Identifier: Apache-2.0
// Builds the status of a run from its ledger, its snapshot and what the caller counted. Reads only; a damaged part is told under
// "problems" and the rest is still shown. Keys: docs/reference/status.md.
#include <aerie/report/status.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/report/holds.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "attempt_outcome.hpp"
#include "next_step.hpp"
#include "process_state.hpp"
#include "stall.hpp"

namespace aerie::report {
namespace {
using base::Json;

Json phases_json(const RunState& state, const Outside& outside) {
  Json out = Json::array();
  for (int p = 0; p <= static_cast<int>(Phase::bench); ++p) {
    const auto phase = static_cast<Phase>(p);
    const auto it = state.phases.find(phase);
    const PhaseRecord record = it == state.phases.end() ? PhaseRecord{} : it->second;
    const auto outdated = outside.outdated.find(phase);
    const bool told = record.state == PhaseState::complete && outdated != outside.outdated.end();
    out.push_back({{"phase", phase_name(phase)},
                   {"state", phase_state_name(record.state)},
                   {"outdated", told ? Json(outdated->second) : Json{}},
                   {"since", record.since.empty() ? Json{} : Json(record.since)},
                   {"evidence", record.evidence}});
  }
  return out;
}

Json samples_json(const RunState& state, const Json& counts) {
  if (!counts.is_object()) return nullptr;
  // The store knows which samples are failed now; the ledger also remembers those that a later attempt mended.
  Json failed = Json::array();
  const auto add = [&](std::int64_t sample, const std::string& id, const std::string& reason, const std::string& text,
                       bool decided) {
    failed.push_back({{"sample", sample}, {"id", id}, {"reason", reason}, {"text", text}, {"decided", decided}});
  };
  if (const auto given = counts.find("failed_samples"); given != counts.end())
    for (const auto& f : *given)
      add(f.value("sample", std::int64_t{-1}), f.value("id", ""), f.value("reason", ""), f.value("text", ""),
          f.value("decided", false));
  else
    for (const auto& f : state.failed) add(f.sample, f.id, f.reason, f.text, f.decided);
  const auto number = [&](const char* key) { return counts.value(key, std::int64_t{0}); };
  return {{"total", number("total")},     {"done", number("done")},         {"failed", number("failed")},
          {"missing", number("missing")}, {"excluded", number("excluded")}, {"failed_samples", std::move(failed)}};
}

Json running_json(const Json& snapshot, double now) {
  if (!snapshot.is_object()) return nullptr;
  Json out = Json::object();
  for (const char* key : {"phase", "done", "total", "unit", "rate", "eta_s", "step", "loss", "updated"})
    out[key] = snapshot.value(key, Json{});
  const auto updated = out["updated"].is_string() ? parse_utc(out["updated"].get<std::string>()) : std::nullopt;
  out["age_s"] = updated ? Json(std::max(0.0, now - *updated)) : Json{};
  return out;
}

Json checkpoint_json(const RunState& state, const Json& given, double now) {
  Json out = {{"step", nullptr}, {"path", nullptr}, {"time", nullptr}, {"age_s", nullptr}};
  std::optional<double> at;
  if (given.is_object()) {
    out["step"] = given.value("step", Json{});
    out["path"] = given.value("path", Json{});
    out["time"] = given.value("time", Json{});
    if (given.contains("unix") && given["unix"].is_number()) at = given["unix"].get<double>();
    if (out["time"].is_null() && out["step"] == state.last_checkpoint_step) out["time"] = state.last_checkpoint_time;
  } else if (state.last_checkpoint_step >= 0) {
    out["step"] = state.last_checkpoint_step;
    out["time"] = state.last_checkpoint_time;
  } else {
    return nullptr;
  }
  if (!at && out["time"].is_string()) at = parse_utc(out["time"].get<std::string>());
  if (at) out["age_s"] = std::max(0.0, now - *at);
  return out;
}

Json attempts_json(const RunState& state, const Outside& outside) {
  Json out = Json::array();
  for (const auto& a : state.attempts) {
    const auto [outcome, explanation] = verdict_on(state, a, outside);
    out.push_back({{"number", a.number},
                   {"program", a.program},
                   {"begin", a.begin},
                   {"end", a.end.empty() ? Json{} : Json(a.end)},
                   {"host", a.host},
                   {"job", a.job},
                   {"ranks", a.ranks},
                   {"exit_code", a.exit_code >= 0 ? Json(a.exit_code) : Json{}},
                   {"outcome", outcome},
                   {"explanation", explanation},
                   {"reason", a.reason},
                   {"progress", a.progress}});
  }
  return out;
}

/// Who keeps a job from starting, and the same for people; two nulls when nobody does.
std::pair<Json, Json> hold_json(const Holds& holds, const std::string& job, const QueuedJob& now) {
  if (now.held.empty()) return {};
  const auto* by = find_holder(holds, job);
  if (!by) return {"person", fmt::format("held ({}), not by a recovery", now.held)};
  const bool gone = life_of(*by) == Life::dead;
  return {gone ? "ended-recovery" : "recovery",
          fmt::format("held by aerie recover, host {}, pid {}, since {}{}", by->host, by->pid, by->since,
                      gone ? ", which is gone and let nothing go" : "")};
}

/// The jobs of the newest submission and where Slurm has them.
Json jobs_json(const RunState& state, const Holds& holds, const Outside& outside) {
  Json out = Json::array();
  for (const auto& j : state.jobs) {
    Json where;
    std::pair<Json, Json> held;
    if (outside.queue) {
      const auto* found = find_job(*outside.queue, j.job);
      where = found ? found->state : "ENDED";
      for (const auto& [id, job] : *outside.queue)
        if ((id == j.job || id.starts_with(j.job + "_")) && held.first.is_null()) held = hold_json(holds, id, job);
    }
    out.push_back({{"phase", j.phase}, {"job", j.job}, {"state", where}, {"held", held.first}, {"holder", held.second}});
  }
  return out;
}

bool is_run(const std::filesystem::path& run) {
  std::error_code ignored;
  for (const char* name : {"ledger.jsonl", "aerie.toml", "resolved.json"})
    if (std::filesystem::exists(run / name, ignored)) return true;
  return false;
}
}  // namespace

Json build_status(const std::filesystem::path& run, const Json& store_counts, const Json& checkpoint, const Outside& outside) {
  if (!is_run(run)) throw base::MissingInputError(run.string() + ": no run directory", "`aerie init RUN` makes one");
  const double now = base::unix_now();
  Json problems = outside.problems;
  if (problems.is_null()) problems = Json::array();
  if (!std::filesystem::exists(Ledger(run).path()) && std::filesystem::exists(run / "resolved.json"))
    problems.push_back("ledger.jsonl is gone: what was done and decided is not known");
  RunState state;
  Holds holds;
  try {
    const auto lines = Ledger(run).read();
    state = replay(lines);
    holds = holds_of_recoveries(lines);
  } catch (const base::Error& e) {
    problems.push_back(e.what());
  }
  Json snapshot;
  try {
    snapshot = base::read_json(run / "status.json");
  } catch (const base::MissingInputError&) {  // nothing ran yet
  } catch (const base::Error& e) {  // not synced when written: a power cut may leave it empty, and the next update replaces it
    problems.push_back(e.what());
  }
  Json todo = Json::array(), decisions = Json::array();
  for (const auto& t : state.todos)
    todo.push_back(
        {{"content", t.value("content", "")}, {"priority", t.value("priority", "")}, {"status", t.value("status", "")}});
  for (const auto& d : state.decisions)
    decisions.push_back({{"what", d.value("what", "")}, {"time", d.value("time", "")}, {"details", d.value("details", Json{})}});
  Json out = {{"schema", "aerie-status"},
              {"version", 1},
              {"run", run.string()},
              {"time", base::utc_now()},
              {"phases", phases_json(state, outside)},
              {"samples", samples_json(state, store_counts)},
              {"running", running_json(snapshot, now)},
              {"checkpoint", checkpoint_json(state, checkpoint, now)},
              {"attempts", attempts_json(state, outside)},
              {"jobs", jobs_json(state, holds, outside)},
              {"todo", std::move(todo)},
              {"decisions", std::move(decisions)},
              {"problems", std::move(problems)}};
  out["stall"] = stall_json(run, state, out["attempts"], snapshot, store_counts, outside, now);
  out["stalled"] = !out["stall"].is_null();
  out["next"] = next_step(run, out);
  return out;
}

}  // namespace aerie::report
