// SPDX-License-Identifier: Apache-2.0
#include "recover_plan.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/train_history.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "phases.hpp"

namespace aerie::apps {
namespace {
using base::Json;
using report::Phase;

double number(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

/// Tokens per second of the newest extraction that tells: a killed one left its snapshot, others their evidence.
double extraction_rate(const config::Config& c) {
  Json snapshot;
  base::capture([&] { snapshot = base::read_json(c.run_dir / "status.json"); });  // not there, or torn by a power cut
  if (snapshot.is_object() && snapshot.value("phase", Json{}) == "extract")
    if (const auto rate = number(snapshot, "rate"); rate > 0) return rate;
  const auto lines = report::Ledger(c.run_dir).read();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->value("kind", Json{}) != "phase" || line->value("phase", Json{}) != "extract") continue;
    const Json evidence = line->value("evidence", Json{});
    if (number(evidence, "seconds") > 0 && number(evidence, "tokens") > 0)
      return number(evidence, "tokens") / number(evidence, "seconds");
  }
  return 0;
}

void add_extraction(Plan& plan, const config::Config& c, const Mended& store) {
  const auto& n = store.counts;
  // The damaged ones' tokens are not known one by one: as many as the rest has on average.
  const double per_sample = n.done > 0 ? static_cast<double>(n.done_tokens) / static_cast<double>(n.done) : 0;
  const double tokens = static_cast<double>(n.total_tokens - n.done_tokens) + per_sample * static_cast<double>(store.bad);
  const double rate = extraction_rate(c);
  plan.evidence["missing"] = store.missing;
  plan.evidence["tokens"] = tokens;
  plan.evidence["rate_tokens_per_s"] = rate > 0 ? Json(rate) : Json{};
  plan.evidence["seconds"] = rate > 0 ? Json(tokens / rate) : Json{};
  plan.said.push_back(fmt::format("extract: {} samples to do, {} tokens: {}", store.missing, base::format_count(tokens),
                                  rate > 0 ? fmt::format("about {} at the last known rate, {} tokens/s",
                                                         base::format_duration(tokens / rate), base::format_count(rate))
                                           : "no rate is known yet"));
}

void add_training(Plan& plan, const config::Config& c, const Assessment& found) {
  const auto history = report::train_history(report::Ledger(c.run_dir).read());
  const auto step = found.checkpoint.value_or(0);
  plan.evidence["from_step"] = step;
  std::string text = step > 0 ? fmt::format("train: goes on from step {}", step) : "train: from the beginning";
  if (c.train.steps > 0) {
    const auto left = std::max<std::int64_t>(0, c.train.steps - step);
    plan.evidence["steps"] = left;
    text += fmt::format(", {} steps to do", left);
    if (history.step_s > 0) {
      plan.evidence["seconds"] = history.step_s * static_cast<double>(left);
      text += fmt::format(": about {} at {:.3g} s a step", base::format_duration(history.step_s * static_cast<double>(left)),
                          history.step_s);
    }
  }
  plan.said.push_back(std::move(text));
}
}  // namespace

Plan plan_resume(const config::Config& c, const Assessment& found, const std::optional<Mended>& store) {
  Plan plan;
  const auto state = report::replay(report::Ledger(c.run_dir).read());
  std::vector<std::string_view> left;
  const bool missing = store && store->missing > 0;  // a dry run has not set the damaged ones back
  for (const auto phase : pipeline) {
    const bool again = missing && (phase == Phase::extract || phase == Phase::verify);
    if (!again && !why_not_done(c, state, phase)) continue;
    if (!plan.phase) plan.phase = phase;
    left.push_back(report::phase_name(phase));
  }
  plan.evidence = {{"phases", left}};
  if (missing) add_extraction(plan, c, *store);
  if (plan.phase == Phase::train) add_training(plan, c, found);
  plan.said.push_back(left.empty() ? "all phases are complete" : fmt::format("phases to do: {}", fmt::join(left, ", ")));
  return plan;
}

}  // namespace aerie::apps
