// SPDX-License-Identifier: Apache-2.0
// The trainer's state and parts: global_step.cpp makes a step, validation.cpp looks at held-out packs, saver.hpp saves, and
// trainer.cpp holds the loop.
#pragma once
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>
#include <aerie/train/loss_watch.hpp>
#include <aerie/train/trainer.hpp>

#include "optimizer_shard.hpp"
#include "saver.hpp"

namespace aerie::train {

double now_s();
inline std::span<float> floats(const at::Tensor& t) { return {t.mutable_data_ptr<float>(), static_cast<std::size_t>(t.numel())}; }

/// What all ranks know after a step's all-reduce.
struct StepOutcome {
  stop::Request request = stop::Request::none;  // the largest of all ranks
  bool all_ready = true;                        // no rank's thread has work left in the running save
  std::optional<base::Error> bad;               // the step is bad and ends training; it was not made
};

struct Trainer::Impl {
  comm::Comm world;
  comm::Transport& transport;
  draft::DrafterShape shape;
  const draft::TargetHead& target;
  const interchange::VocabMap& vocab;
  dataset::PackList& packs;
  std::span<const std::int64_t> loss_counts;
  PackSource& source;
  TrainerOptions options;
  c10::Device device;
  c10::ScalarType dtype;

  Schedule schedule;
  OptimizerShard optimizer;
  Saver saver;
  at::Tensor flat_padded;  // everybody's weights: compute dtype on the device, padded to whole blocks
  draft::DrafterWeights weights;
  at::Tensor grad_padded, grad_flat;  // fp32 on the device; grad_flat is without the padding
  draft::DrafterWeights grads;
  at::Tensor sum;  // i64 fixed point on the device, padded; with reduce = fast there is none, grad_padded is the sum

  // The position: with the weights, all that a checkpoint needs.
  std::int64_t step = 0, packs_consumed = 0;
  LossWatch watch;
  std::int64_t skipped = 0, skipped_in_row = 0;
  std::int64_t validated = -1;  // step of the last validation

  struct Prefetch {
    std::int64_t index = -1;
    std::future<draft::PackBatch> batch;
  } next;

  Impl(const comm::Comm& w, comm::Transport& t, const draft::DrafterShape& s, const draft::TargetHead& th,
       const interchange::VocabMap& v, dataset::PackList& p, std::span<const std::int64_t> lc, PackSource& src, TrainerOptions o,
       c10::Device d, c10::ScalarType dt);

  std::int64_t K() const { return options.unroll.ttt_steps; }
  base::Json position() const;
  void set_position(const base::Json& position);

  /// One global step. `stop` is looked at once more just before the step's all-reduce, so that a request never waits for a second
  /// step. `trouble`: what went wrong on this rank since the last step; with one on any rank, all throw it. Collective over
  /// world.
  StepOutcome train_step(StepReport& report, stop::Request request, stop::StopToken& stop,
                         const std::optional<base::Error>& trouble);

  bool validation_due() const;
  /// Looks at the held-out packs; nothing of the training state changes. False when a stop was asked for before its end: then
  /// there is no report. Collective over world.
  bool validate(stop::StopToken& stop, ValidationReport& report);

 private:
  /// A pack whose loss or gradient is not finite, or out of the fixed-point range.
  struct BadPack {
    std::int64_t pack = 0;
    std::string what;
  };
  std::vector<std::int64_t> own_packs(std::int64_t first);
  draft::PackBatch fetch(std::int64_t index, std::int64_t after);
  std::vector<std::int64_t> global_counts(std::int64_t first);
  std::optional<std::string> add_pack(std::int64_t pack, std::int64_t after, const std::vector<double>& coefficients,
                                      std::vector<std::int64_t>& totals, StepReport& report);
  std::string tensor_at(std::int64_t element) const;
  std::string samples_of(std::int64_t pack);
  std::string describe_bad(const std::vector<BadPack>& mine);  // collective over world
  void update(StepReport& report, std::int64_t loss);          // collective over world
};

}  // namespace aerie::train
