// SPDX-License-Identifier: Apache-2.0
// Builds the status of a run from its ledger, its snapshot and what the caller counted. Reads only; a damaged part is told under
// "problems" and the rest is still shown. Keys: docs/reference/status.md.
#include <aerie/report/status.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/exit_codes.hpp>
#include <aerie/base/host.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "next_step.hpp"
#include "process_state.hpp"

namespace aerie::report {
namespace {
using base::Json;

Json phases_json(const RunState& state) {
  Json out = Json::array();
  for (int p = 0; p <= static_cast<int>(Phase::bench); ++p) {
    const auto phase = static_cast<Phase>(p);
    const auto it = state.phases.find(phase);
    const PhaseRecord record = it == state.phases.end() ? PhaseRecord{} : it->second;
    out.push_back({{"phase", phase_name(phase)},
                   {"state", phase_state_name(record.state)},
                   {"since", record.since.empty() ? Json{} : Json(record.since)},
                   {"evidence", record.evidence}});
  }
  return out;
}

Json samples_json(const RunState& state, const Json& counts) {
  if (!counts.is_object()) return nullptr;
  Json failed = Json::array();
  std::set<std::int64_t> decided;
  for (const auto& f : state.failed) {
    if (f.decided) decided.insert(f.sample);
    if (!counts.contains("failed_samples"))
      failed.push_back({{"sample", f.sample}, {"id", f.id}, {"reason", f.reason}, {"text", f.text}, {"decided", f.decided}});
  }
  std::set<std::string> decided_ids;
  for (const auto& d : state.decisions)
    if (d.value("what", Json{}) == "accept-missing" && d.contains("details") && d["details"].is_object())
      for (const auto& id : d["details"].value("ids", Json::array()))
        if (id.is_string()) decided_ids.insert(id.get<std::string>());
  // The store knows which samples are failed now; the ledger also remembers those that a later attempt mended.
  for (const auto& f : counts.value("failed_samples", Json::array())) {
    const auto sample = f.value("sample", std::int64_t{-1});
    const auto id = f.value("id", "");
    failed.push_back({{"sample", sample},
                      {"id", id},
                      {"reason", f.value("reason", "")},
                      {"text", f.value("text", "")},
                      {"decided", decided.contains(sample) || decided_ids.contains(id)}});
  }
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

/// How an attempt ended, in one word and one sentence.
std::pair<std::string, std::string> outcome_of(const RunState& state, const AttemptRecord& attempt) {
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
    return other.program == attempt.program && other.number > attempt.number && (attempt.job.empty() || other.job == attempt.job);
  });
  if (superseded) return {"died", "it recorded no end and was started again"};
  return {"unknown", fmt::format("no end is recorded; it ran on {}, which this host cannot look at",
                                 attempt.host.empty() ? "?" : attempt.host)};
}

Json attempts_json(const RunState& state) {
  Json out = Json::array();
  for (const auto& a : state.attempts) {
    const auto [outcome, explanation] = outcome_of(state, a);
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

/// Nothing was committed for ten times the median interval, while an attempt may be at work.
bool is_stalled(const Json& attempts, const Json& counts, const Json& snapshot, double now) {
  const bool at_work = !attempts.empty() && (attempts.back()["outcome"] == "running" || attempts.back()["outcome"] == "unknown");
  for (const Json* source : {&snapshot, &counts}) {
    if (!at_work || !source->is_object()) continue;
    const auto last = source->value("last_commit_unix", Json{}), interval = source->value("median_commit_interval_s", Json{});
    if (last.is_number() && interval.is_number() && interval.get<double>() > 0)
      return now - last.get<double>() > 10 * interval.get<double>();
  }
  return false;
}

bool is_run(const std::filesystem::path& run) {
  std::error_code ignored;
  for (const char* name : {"ledger.jsonl", "aerie.toml", "resolved.json"})
    if (std::filesystem::exists(run / name, ignored)) return true;
  return false;
}
}  // namespace

Json build_status(const std::filesystem::path& run, const Json& store_counts, const Json& checkpoint) {
  if (!is_run(run)) throw base::MissingInputError(run.string() + ": no run directory", "`aerie init RUN` makes one");
  const double now = base::unix_now();
  Json problems = Json::array();
  RunState state;
  try {
    state = replay(Ledger(run).read());
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
              {"phases", phases_json(state)},
              {"samples", samples_json(state, store_counts)},
              {"running", running_json(snapshot, now)},
              {"checkpoint", checkpoint_json(state, checkpoint, now)},
              {"attempts", attempts_json(state)},
              {"todo", std::move(todo)},
              {"decisions", std::move(decisions)},
              {"problems", std::move(problems)}};
  out["stalled"] = is_stalled(out["attempts"], store_counts, snapshot, now);
  out["next"] = next_step(run, out);
  return out;
}

}  // namespace aerie::report
