// SPDX-License-Identifier: Apache-2.0
// When to save, the save that goes on beside training, what happens once it is published (retention), and whether a save fits
// into the time between a warning and the end. Collective calls say so.
#pragma once
#include <functional>
#include <future>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <aerie/ckpt/background_save.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/train/trainer.hpp>

#include "optimizer_shard.hpp"

namespace aerie::train {

class Saver {
 public:
  /// Whether it was recorded: until then nothing older is removed.
  using Published = std::function<bool(std::int64_t step, const ckpt::Saved&)>;
  Saver(const comm::Comm& world, const TrainerOptions& options, const OptimizerShard& optimizer, c10::Device device);
  ~Saver();

  /// The state on disk is that of `step`, from which this attempt was loaded.
  void loaded(std::int64_t step);
  /// The clock of time-based saves starts now. `published` is called on rank 0 for each.
  void begin(Published published);

  std::int64_t saved_step() const { return saved_step_; }
  bool running() const { return save_ != nullptr; }
  /// This rank's thread has nothing to do. Goes into the step's all-reduce.
  bool ready() const { return !save_ || save_->ready(); }
  bool due_by_steps(std::int64_t step) const;
  bool due_by_time() const;
  /// Writing and publishing of the last save; a guess before there was one.
  double save_seconds() const { return save_s_; }

  /// Copies and goes on in the background; one that is still running is waited for first. `step_s`, seconds of a step, is
  /// compared with the lead time after each publication (RefusedError when strict). Collective over world.
  void start(std::int64_t step, const base::Json& position, double step_s);
  /// To be called after every step: takes a running save on when every rank was ready. True when one was published. Collective
  /// over world.
  bool after_step(bool all_ready, double step_s);
  /// Waits for a running save. `step_s` < 0: training ends with it. Collective over world.
  void finish(double step_s);
  /// The last save: it is waited for. Collective over world.
  void save_now(std::int64_t step, const base::Json& position);
  /// Waits for deletions. Local.
  void wait_for_retention();

 private:
  ckpt::SaveRequest request(std::int64_t step, const base::Json& position) const;
  void done(std::int64_t step, const ckpt::Saved& saved, double step_s);
  void retain();
  comm::Comm world_;
  const TrainerOptions& options_;
  const OptimizerShard& optimizer_;
  c10::Device device_;
  Published published_;
  at::Tensor staging_;  // host memory, pinned where there is a GPU
  std::unique_ptr<ckpt::BackgroundSave> save_;
  std::future<void> retention_;
  std::int64_t saved_step_ = -1, loaded_step_ = -1, published_count_ = 0;
  double save_s_ = 5.0;               // until one was measured
  double state_s_ = 0, begun_s_ = 0;  // when the last published state stood; when the running save's did
  bool warned_ = false;
};

}  // namespace aerie::train
