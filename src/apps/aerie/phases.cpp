// SPDX-License-Identifier: Apache-2.0
#include "phases.hpp"

#include <aerie/base/error.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/vocab_map.hpp>
#include <aerie/io/store.hpp>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <fmt/format.h>

#include "phase_inputs.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using report::Phase;

std::vector<Phase> needs(Phase phase) {
  switch (phase) {
    case Phase::extract:
      return {Phase::prepare};
    case Phase::verify:
      return {Phase::extract};
    case Phase::vocab:
      return {Phase::prepare};
    case Phase::train:
      return {Phase::extract, Phase::vocab};
    case Phase::eval:
      return {Phase::prepare, Phase::train};
    case Phase::export_:
      return {Phase::train};
    default:
      return {};
  }
}

/// The hash of the configuration that the phase was done with: in its evidence, or in the begin line of the program's last good
/// attempt.
std::string inputs_of(const report::RunState& state, Phase phase) {
  const auto& evidence = state.phases.at(phase).evidence;
  if (evidence.is_object() && evidence.contains("inputs")) return evidence.value("inputs", "");
  const auto program = fmt::format("aerie-{}", report::phase_name(phase));
  for (auto it = state.attempts.rbegin(); it != state.attempts.rend(); ++it)
    if (it->program == program && it->exit_code == 0 && it->begin_details.contains("inputs") &&
        it->begin_details["inputs"].is_string())
      return it->begin_details["inputs"].get<std::string>();
  return {};
}

/// What `phase` made that `user` goes on with, as its evidence tells; empty when it does not tell.
base::Json product_of(Phase phase, const base::Json& evidence, Phase user) {
  base::Json out = base::Json::object();
  const auto take = [&](std::initializer_list<const char*> keys) {
    for (const auto* key : keys)
      if (evidence.is_object() && evidence.contains(key)) out[key] = evidence[key];
  };
  switch (phase) {
    case Phase::prepare:
      take({"dataset_hash"});
      if (user == Phase::eval && evidence.is_object() && evidence.contains("eval"))
        out["eval"] = evidence["eval"].value("dataset_hash", "");
      break;
    case Phase::extract:
      take({"store_uuid", "store_state"});
      break;
    case Phase::vocab:
      take({"vocab_hash"});
      break;
    case Phase::train:
      take({"weights_sha256", "step"});
      break;
    default:
      break;
  }
  return out;
}

/// A phase that was run again and came out as before (nothing was left to do) leaves those that build on it valid: what counts is
/// not when it became complete, but whether what it made is another thing than it was when `record` was built on it.
bool was_done_again(const report::RunState& state, Phase need, Phase phase, const report::PhaseRecord& record) {
  const auto found = state.completions.find(need);
  if (found == state.completions.end()) return true;
  const auto& all = found->second;  // by line
  const auto then = std::find_if(all.rbegin(), all.rend(), [&](const auto& r) { return r.line < record.line; });
  if (then == all.rend()) return true;
  if (then->line == all.back().line) return false;
  const auto before = product_of(need, then->evidence, phase), now = product_of(need, all.back().evidence, phase);
  return before.empty() || before != now;
}

std::optional<std::string> gone(const fs::path& path) {
  if (fs::exists(path)) return std::nullopt;
  return path.string() + " is gone";
}

std::optional<std::string> output_fault(const config::Config& c, const report::RunState& state, Phase phase,
                                        const base::Json& evidence) {
  switch (phase) {
    case Phase::prepare: {
      if (auto fault = gone(c.dataset_file())) return fault;
      if (dataset::Dataset::open(c.dataset_file()).hash() != evidence.value("dataset_hash", ""))
        return "the dataset is another one";
      return c.eval.conversations.empty() ? std::nullopt : gone(c.eval_file());
    }
    case Phase::extract: {
      const auto view = view_store(c, state);
      if (!view) return c.store_dir().string() + " is gone";
      if (view->store.identity().dataset_hash != dataset::Dataset::open(c.dataset_file()).hash())
        return "the store is of another dataset";
      if (const auto open = base::capture([&] { demand_settled(c, *view); })) return open->what();
      return std::nullopt;
    }
    case Phase::verify:
      if (!io::complete_marker_holds(io::Store::open(c.store_dir()))) return "COMPLETE does not hold";
      return std::nullopt;
    case Phase::vocab: {
      const auto file = c.run_dir / "vocab.safetensors";
      if (auto fault = gone(file)) return fault;
      if (interchange::vocab_hash(interchange::read_vocab_map(file)) != evidence.value("vocab_hash", ""))
        return "vocab.safetensors is another one";
      return std::nullopt;
    }
    case Phase::train: {
      const auto newest = ckpt::latest(c.checkpoint_dir(), false);
      if (!newest) return "no checkpoint is left";
      if (const auto total = evidence.value("total_steps", std::int64_t{0}); newest->step < total)
        return fmt::format("the newest checkpoint is step {} of {}", newest->step, total);
      return std::nullopt;
    }
    case Phase::eval:
      return gone(c.run_dir / "eval.json");
    case Phase::export_:
      for (const auto& format : c.export_.formats)
        if (auto fault = gone(c.run_dir / "export" / format / "config.json")) return fault;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}
}  // namespace

report::Phase phase_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto p : pipeline) {
    if (report::phase_name(p) == name) return p;
    names.emplace_back(report::phase_name(p));
  }
  throw base::ConfigError(fmt::format("unknown phase '{}'", name),
                          fmt::format("did you mean '{}'?", config::nearest_of(name, names)));
}

std::optional<std::string> why_not_done(const config::Config& config, const report::RunState& state, report::Phase phase) {
  const auto record = state.phases.find(phase);
  if (record == state.phases.end() || record->second.state == report::PhaseState::pending) return "not done yet";
  if (record->second.state != report::PhaseState::complete)
    return fmt::format("is {}", report::phase_state_name(record->second.state));
  for (const auto need : needs(phase)) {
    const auto earlier = state.phases.find(need);
    if (earlier == state.phases.end() || earlier->second.state != report::PhaseState::complete)
      return fmt::format("{} is not complete", report::phase_name(need));
    if (was_done_again(state, need, phase, record->second)) return fmt::format("{} was done again", report::phase_name(need));
  }
  if (const auto inputs = inputs_of(state, phase); !inputs.empty() && inputs != phase_inputs(config, phase))
    return "its configuration changed";
  std::optional<std::string> fault;
  if (const auto error = base::capture([&] { fault = output_fault(config, state, phase, record->second.evidence); }))
    return error->what();
  return fault;
}

}  // namespace aerie::apps
