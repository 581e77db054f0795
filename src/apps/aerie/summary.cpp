// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/ledger.hpp>

#include <fmt/format.h>

#include "command_line.hpp"
#include "phases.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using base::Json;

double number(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object.at(key).is_number()) return 0;
  return object.at(key).get<double>();
}

std::string samples_line(const config::Config& c) {
  const auto view = view_store(c);
  if (!view) return {};
  auto out = fmt::format("samples   {} done, {} failed, {} excluded by rule, {} missing, of {}\n", view->counts.done,
                         view->counts.failed - view->excluded, view->excluded, view->counts.pending, view->counts.total);
  std::vector<NotDone> failed;
  for (const auto& f : view->failed)
    if (!f.excluded) failed.push_back(f);
  if (!failed.empty()) out += fmt::format("          failed: {}\n", name_some(failed));
  return out;
}

std::string speed_lines(const report::RunState& state) {
  std::string out;
  for (const auto phase : pipeline) {
    const auto it = state.phases.find(phase);
    if (it == state.phases.end() || it->second.state != report::PhaseState::complete) continue;
    const double tokens = number(it->second.evidence, "tokens"), seconds = number(it->second.evidence, "seconds");
    if (seconds <= 0) continue;
    out += fmt::format("  {:<10}{:>10}{:>14}{:>14}\n", report::phase_name(phase), base::format_duration(seconds),
                       tokens > 0 ? base::format_count(tokens) : "-", tokens > 0 ? base::format_count(tokens / seconds) : "-");
  }
  return out.empty() ? out : fmt::format("  {:<10}{:>10}{:>14}{:>14}\n{}", "phase", "time", "tokens", "tokens/s", out);
}

std::string number_cell(const Json& value) {
  return value.is_number() ? fmt::format("{:>8.3f}", value.get<double>()) : fmt::format("{:>8}", "-");
}

std::string eval_lines(const Json& eval) {
  std::string header = fmt::format("  {:<18}", "unroll step"), rows;
  std::size_t steps = 0;
  for (const char* when : {"initial", "trained"}) {
    const auto part = eval.find(when);
    if (part == eval.end() || !part->is_object()) continue;
    const auto match = part->value("match", Json::array());
    steps = std::max(steps, match.size());
    rows += fmt::format("  {:<18}", fmt::format("match {}", when));
    for (const auto& m : match) rows += number_cell(m);
    rows += '\n';
  }
  for (std::size_t k = 0; k < steps; ++k) header += fmt::format("{:>8}", k);
  for (const char* when : {"initial", "trained"}) {
    const auto part = eval.find(when);
    if (part == eval.end() || !part->is_object() || !part->contains("tau")) continue;
    rows += fmt::format("  {:<18}", fmt::format("tau {}", when));
    const Json tau = part->at("tau");
    for (const auto& [chain, value] : tau.items()) rows += fmt::format("  chain {}:{}", chain, number_cell(value));
    rows += '\n';
  }
  return rows.empty() ? rows : header + "\n" + rows;
}
}  // namespace

std::string summary(const config::Config& c) {
  const auto state = report::replay(report::Ledger(c.run_dir).read());
  std::string out = fmt::format("run       {}\n", c.run_dir.string());
  out += samples_line(c);
  out += speed_lines(state);
  if (const auto file = c.run_dir / "eval.json"; fs::exists(file)) out += eval_lines(base::read_json(file));
  std::string first;
  for (const auto& format : c.export_.formats) {
    const auto dir = c.run_dir / "export" / format;
    if (!fs::exists(dir / "config.json")) continue;
    out += fmt::format("export    {:<12} {}\n", format, fs::absolute(dir).lexically_normal().string());
    if (first.empty()) first = format;
  }
  const auto target = shell_word(c.target.path.string());
  const auto dir = shell_word(fs::absolute(c.run_dir / "export" / first).lexically_normal().string());
  if (first == "sglang")
    out += fmt::format(
        "next      python3 -m sglang.launch_server --model-path {} --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path {} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens "
        "4\n",
        target, dir);
  else if (!first.empty())
    out += fmt::format(
        "next      vllm serve {} --speculative-config '{{\"method\": \"eagle3\", \"model\": \"{}\", \"num_speculative_tokens\": "
        "3}}'\n",
        target, fs::absolute(c.run_dir / "export" / first).lexically_normal().string());
  else
    out += fmt::format("next      aerie status {}\n", shell_word(c.run_dir.string()));
  return out;
}

}  // namespace aerie::apps
