// SPDX-License-Identifier: Apache-2.0
// What a training run leaves behind while it runs, all by rank 0: metrics.jsonl, samples.jsonl (the sample order), status.json,
// ledger lines of checkpoints and skipped steps.
#pragma once
#include <optional>

#include <aerie/base/log.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/report/commit_clock.hpp>
#include <aerie/report/metrics.hpp>
#include <aerie/train/trainer.hpp>

#include "run.hpp"

namespace aerie::apps {

class TrainReports {
 public:
  /// Cuts the files after `step`. Throws IoError.
  TrainReports(const ProgramContext& context, const dataset::Dataset& data, std::int64_t step, std::int64_t total_steps);
  void step(const train::StepReport& r);
  void saved(std::int64_t step, const ckpt::Saved& saved);
  void validated(const train::ValidationReport& r);
  std::int64_t tokens() const { return tokens_; }
  double seconds() const { return seconds_; }

 private:
  const ProgramContext& context_;
  const dataset::Dataset& data_;
  std::int64_t first_step_, total_steps_;
  report::Metrics metrics_, samples_;
  base::Progress progress_;
  report::CommitClock clock_;  // of steps: their time is what people wait for, whenever a checkpoint comes
  std::int64_t tokens_ = 0;
  double seconds_ = 0, step_s_ = 0;
};

}  // namespace aerie::apps
