// SPDX-License-Identifier: Apache-2.0
#include "train_reports.hpp"

#include <fmt/format.h>

#include <aerie/base/fault.hpp>
#include <aerie/base/host.hpp>

namespace aerie::apps {

TrainReports::TrainReports(const ProgramContext& context, const dataset::Dataset& data, std::int64_t step,
                           std::int64_t total_steps)
    : context_(context),
      data_(data),
      first_step_(step),
      total_steps_(total_steps),
      metrics_(context.config.run_dir / "metrics.jsonl", step),
      samples_(context.config.run_dir / "samples.jsonl", step),
      progress_("step", "steps", total_steps),
      clock_(step, base::unix_now()) {}

void TrainReports::step(const train::StepReport& r) {
  tokens_ += r.tokens;
  seconds_ += r.seconds;
  step_s_ = r.seconds;
  context_.end_details["steps"] = r.step - first_step_;
  base::fault_point("train.report");
  base::Json ids = base::Json::array();
  for (const auto s : r.samples) ids.push_back(data_.id(s));
  samples_.write({{"step", r.step}, {"first_pack", r.first_pack}, {"samples", ids}});
  base::Json line{{"step", r.step},           {"lr", r.lr},
                  {"loss", r.loss},           {"step_loss", r.step_loss},
                  {"match", r.match},         {"cumulative", r.cumulative},
                  {"grad_norm", r.grad_norm}, {"tokens", r.tokens},
                  {"seconds", r.seconds},     {"waiting_s", r.waiting_s},
                  {"update_s", r.update_s},   {"time", base::unix_now()}};
  if (!r.bad.empty()) {
    line["skipped"] = r.bad;
    base::log_warning(fmt::format("step {} skipped: {}", r.step, r.bad));
    context_.ledger.evidence("step-skipped", {{"step", r.step}, {"why", r.bad}, {"samples", ids}});
  }
  metrics_.write(line);
  progress_.update(r.step, tokens_, 0, fmt::format("loss {:.3f} match {:.3f}", r.loss, r.match.front()));
  const auto now = base::unix_now();
  clock_.advance(r.step, now);
  // A validation, and the last save, take as long as they take.
  const auto every = context_.config.eval.every_steps;
  const bool pause = r.step == total_steps_ || (every > 0 && r.step % every == 0);
  if (pause) clock_.pause(now);
  base::Json snapshot{
      {"phase", "train"},
      {"step", r.step},
      {"total", total_steps_},
      {"done", r.step},
      {"unit", "steps"},
      {"loss", r.loss},
      {"eta_s", static_cast<double>(total_steps_ - r.step) * seconds_ / static_cast<double>(r.step - first_step_)},
      {"rate", seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0.0}};
  clock_.add_to(snapshot);
  context_.status.update(snapshot, pause);
}

void TrainReports::saved(std::int64_t step, const ckpt::Saved& saved) {
  base::fault_point("train.report_save");
  context_.ledger.checkpoint_published(step, saved.path.string(), saved.manifest_hash,
                                       {{"save_s", saved.seconds}, {"blocked_s", saved.blocked_s}, {"step_s", step_s_}});
  // No "step": such lines tell of one attempt's disk, not of the training, and are not repeated by it.
  metrics_.write({{"checkpoint", step},
                  {"save_s", saved.seconds},
                  {"elapsed_s", saved.elapsed_s},
                  {"blocked_s", saved.blocked_s},
                  {"time", base::unix_now()}});
  base::log_info(fmt::format("checkpoint {}: written in {:.2f} s, training waited {:.3f} s", saved.path.string(), saved.seconds,
                             saved.blocked_s));
}

void TrainReports::validated(const train::ValidationReport& r) {
  metrics_.write({{"step", r.step},
                  {"validation",
                   {{"samples", r.samples},
                    {"tokens", r.tokens},
                    {"slots", r.slots},
                    {"step_loss", r.step_loss},
                    {"match", r.match},
                    {"cumulative", r.cumulative},
                    {"alpha", r.alpha},
                    {"seconds", r.seconds}}},
                  {"time", base::unix_now()}});
  base::log_info(fmt::format("validation after step {}: {} samples, match {:.3f}, loss {:.3f} at the first unroll step", r.step,
                             r.samples, r.match.front(), r.step_loss.front()));
}

}  // namespace aerie::apps
