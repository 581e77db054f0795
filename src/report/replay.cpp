// SPDX-License-Identifier: Apache-2.0
// What the ledger's lines add up to. Unknown kinds and fields are passed over, so that a newer program's ledger can be read.
#include <aerie/report/ledger.hpp>

#include <aerie/base/error.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace aerie::report {
namespace {
using base::Json;

PhaseState state_from_name(const std::string& name) {
  for (const auto s :
       {PhaseState::pending, PhaseState::running, PhaseState::complete, PhaseState::interrupted, PhaseState::failed})
    if (phase_state_name(s) == name) return s;
  throw base::DataError("no phase state is named \"" + name + "\"");
}

Json details_of(const Json& line) {
  const auto it = line.find("details");
  return it != line.end() && it->is_object() ? *it : Json::object();
}

void add_attempt(RunState& run, const Json& line) {
  const auto number = line.at("number").get<std::int64_t>();
  const auto program = line.at("program").get<std::string>();
  if (line.at("event") == "begin") {
    AttemptRecord a;
    a.number = number;
    a.program = program;
    a.begin = line.at("time").get<std::string>();
    a.begin_details = details_of(line);
    a.ranks = a.begin_details.value("ranks", std::int64_t{0});
    if (const auto p = line.find("process"); p != line.end()) {
      a.host = p->value("host", "");
      a.job = p->value("job", "");
      a.boot_id = p->value("boot_id", "");
      a.pid = p->value("pid", std::int64_t{0});
      a.start_ticks = p->value("start_ticks", std::int64_t{0});
      a.pid_namespace = p->value("pid_namespace", std::int64_t{0});
      a.restart_count = p->value("restart_count", 0);
    }
    run.attempts.push_back(std::move(a));
    return;
  }
  const auto it = std::find_if(run.attempts.rbegin(), run.attempts.rend(), [&](const AttemptRecord& a) {
    return a.number == number && a.program == program && a.end.empty();
  });
  if (it == run.attempts.rend()) return;  // its begin is lost: nothing to tell
  it->end = line.at("time").get<std::string>();
  it->exit_code = line.at("exit_code").get<int>();
  it->reason = line.value("reason", "");
  it->end_details = details_of(line);
  it->progress = it->progress || it->end_details.value("progress", false);
}

void add_checkpoint(RunState& run, const Json& line) {
  const auto step = line.at("step").get<std::int64_t>();
  if (step <= run.last_checkpoint_step) return;
  run.last_checkpoint_step = step;
  run.last_checkpoint_time = line.at("time").get<std::string>();
  const auto number = line.value("attempt", std::int64_t{0});
  for (auto it = run.attempts.rbegin(); it != run.attempts.rend(); ++it)
    if (it->end.empty() && (number == 0 || it->number == number)) {
      it->progress = true;
      break;
    }
}

using Failed = std::map<std::int64_t, FailedSample>;

void add_failure(Failed& failed, const Json& line) {
  const auto sample = line.at("sample").get<std::int64_t>();
  FailedSample f{sample, line.value("id", ""), line.value("reason", ""), line.value("text", ""), false};
  if (const auto before = failed.find(sample); before != failed.end())
    f.decided = before->second.decided && before->second.reason == f.reason;
  failed[sample] = std::move(f);
}

/// An accept-missing decision, on the failures known so far.
void decide(Failed& failed, const Json& line) {
  std::set<std::string> ids;
  std::set<std::int64_t> samples;
  for (const auto& id : details_of(line).value("ids", Json::array())) {
    if (id.is_string()) ids.insert(id.get<std::string>());
    if (id.is_number_integer()) samples.insert(id.get<std::int64_t>());
  }
  for (auto& [sample, f] : failed) f.decided = f.decided || ids.contains(f.id) || samples.contains(sample);
}

/// A new chain takes the place of the one before; {"job", "replaces"} puts one job in another's place.
void add_jobs(RunState& run, const Json& line) {
  const Json details = details_of(line);
  if (const auto old = details.value("replaces", ""); !old.empty()) {
    const auto base = old.substr(0, old.find('_'));  // a task of an array stands in its array's place, but does not end it
    const auto it = std::find_if(run.jobs.begin(), run.jobs.end(), [&](const SubmittedJob& j) { return j.job == base; });
    if (it == run.jobs.end()) return;
    SubmittedJob job{it->phase, details.at("job").get<std::string>(), it->script};
    if (base == old)
      *it = std::move(job);
    else
      run.jobs.insert(it + 1, std::move(job));
    return;
  }
  run.jobs.clear();
  for (const auto& j : details.value("jobs", Json::array()))
    run.jobs.push_back({j.value("phase", ""), j.at("job").get<std::string>(), j.value("script", "")});
}

void demand(bool holds, const char* what) {
  if (!holds) throw base::DataError(std::string(what) + " has another type");
}
bool is_text(const Json& line, const char* key) { return !line.contains(key) || line[key].is_string(); }
/// What readers take for granted later on, where they could not say which line is at fault.
void check_types(const std::string& kind, const Json& line) {
  demand(is_text(line, "time"), "time");
  if (kind == "todo")
    for (const auto* key : {"content", "priority", "status"}) demand(is_text(line, key), key);
  if (kind == "decision" || kind == "evidence") demand(is_text(line, "what"), "what");
  if (kind == "phase" && line.contains("evidence") && line["evidence"].is_object())
    demand(is_text(line["evidence"], "inputs"), "inputs");
  if (kind == "submit") demand(!line.contains("details") || line["details"].is_object(), "details");
  if (kind != "attempt" || line.value("event", "") != "begin") return;
  demand(!line.contains("process") || line["process"].is_object(), "process");
  const Json details = details_of(line);
  const auto list = [&](const char* key, auto&& each) {
    const auto it = details.find(key);
    demand(it == details.end() || (it->is_array() && std::all_of(it->begin(), it->end(), each)), key);
  };
  list("hosts", [](const Json& h) { return h.is_string(); });
  list("processes", [](const Json& p) {
    if (!p.is_object() || !is_text(p, "host")) return false;
    const auto number = [&](const char* key) { return !p.contains(key) || p[key].is_number_integer(); };
    return number("rank") && number("pid") && number("start_ticks") && number("pid_namespace");
  });
  const auto boots = details.find("boot_ids");
  demand(boots == details.end() ||
             (boots->is_object() && std::all_of(boots->begin(), boots->end(), [](const Json& b) { return b.is_string(); })),
         "boot_ids");
}

void add(RunState& run, Failed& failed, const Json& line, std::size_t number) {
  const auto kind = line.at("kind").get<std::string>();
  check_types(kind, line);
  if (kind == "attempt") {
    add_attempt(run, line);
  } else if (kind == "phase") {
    const auto state = state_from_name(line.at("state").get<std::string>());
    const auto phase = phase_from_name(line.at("phase").get<std::string>());
    const Json evidence = line.value("evidence", Json{});
    if (state == PhaseState::complete && evidence.empty()) return;  // somebody's hand: not believed
    run.phases[phase] = {state, line.at("time").get<std::string>(), evidence, number};
    if (state == PhaseState::complete) run.completions[phase].push_back(run.phases[phase]);
  } else if (kind == "sample-failed") {
    add_failure(failed, line);
  } else if (kind == "decision") {
    run.decisions.push_back(line);
    const auto what = line.value("what", "");
    if (what == "fresh-start") run.last_checkpoint_step = -1;
    if (what == "accept-missing") decide(failed, line);
  } else if (kind == "todo") {
    const auto same = [&](const Json& t) { return t.at("content") == line.at("content"); };
    if (const auto it = std::find_if(run.todos.begin(), run.todos.end(), same); it != run.todos.end())
      *it = line;
    else
      run.todos.push_back(line);
  } else if (kind == "checkpoint") {
    add_checkpoint(run, line);
  } else if (kind == "submit") {
    add_jobs(run, line);
  }
}
}  // namespace

RunState replay(const std::vector<Json>& lines) {
  RunState run;
  Failed failed;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    try {
      add(run, failed, lines[i], i + 1);
    } catch (const Json::exception& e) {
      throw base::DataError(fmt::format("ledger: record {}: {}", i + 1, e.what()), "the ledger was edited or damaged");
    } catch (const base::DataError& e) {
      throw base::DataError(fmt::format("ledger: record {}: {}", i + 1, e.what()), "the ledger was edited or damaged");
    }
  }
  for (auto& entry : failed) run.failed.push_back(std::move(entry.second));
  return run;
}

}  // namespace aerie::report
