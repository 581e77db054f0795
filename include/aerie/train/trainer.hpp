// SPDX-License-Identifier: Apache-2.0
// The training loop: a global step is the next packs of one list, ranks are interchangeable workers, gradients meet in int64
// fixed point, the optimizer is sharded over ranks. Same configuration and data -> same bits for every rank count and any number
// of stops and resumes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/comm/transport.hpp>
#include <aerie/dataset/packs.hpp>
#include <aerie/draft/unroll.hpp>
#include <aerie/report/metrics.hpp>
#include <aerie/stop/stop_token.hpp>
#include <aerie/train/adamw.hpp>
#include <aerie/train/schedule.hpp>
#include <aerie/train/sharding.hpp>

namespace aerie::train {

/// Where a pack's hidden states come from: the store, or the target itself (online). `load` may be called from another thread.
class PackSource {
 public:
  virtual ~PackSource() = default;
  virtual draft::PackBatch load(const dataset::Pack& pack) = 0;
};

struct TrainerOptions {
  draft::UnrollOptions unroll;
  std::vector<double> step_weights;
  std::int64_t packs_per_step = 8;
  double lr = 1e-4, min_lr = 0, warmup = 0.015, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, clip = 0.5;
  std::int64_t total_steps = 1;
  std::int64_t save_every_steps = 500, keep = 3, keep_every = 0;
  double save_every_seconds = 1800;
  std::int64_t attempt = 0;
  std::filesystem::path checkpoints;
  base::Json identity;                                  // compared on resume
  base::Json identity_defaults = base::Json::object();  // what a field was before it existed
  base::Json settings;                                  // goes into checkpoints for people

  /// reduce = fast: gradients are summed in fp32, in the order they come. Not the same bits for another number of ranks.
  bool fast_reduce = false;

  bool skip_bad_steps = false;                                    // else a bad step ends training (65)
  double spike_factor = 10;                                       // train/loss_watch.hpp; 0: no loss is a spike
  std::function<std::string(std::int64_t sample)> sample_name{};  // for reports; the number unless given

  std::int64_t validate_every_steps = 0;
  std::vector<dataset::Pack> validation_packs;  // of samples that are not trained on

  double lead_s = 0;          // seconds between a warning and the end; 0: not known
  bool strict = false;        // refuse (78) instead of warning when a save does not fit into lead_s
  std::int64_t kill_at = -1;  // every rank ends itself by SIGKILL after this step: to see what a death costs
};

/// What a step reports, the same on every rank.
struct StepReport {
  std::int64_t step = 0;  // steps done, this one included
  double lr = 0, loss = 0, grad_norm = 0, seconds = 0, waiting_s = 0;
  double update_s = 0;  // of `seconds`: reduction over ranks, optimizer, gathering of weights
  std::int64_t tokens = 0;
  std::vector<double> step_loss, match, cumulative;  // K
  std::int64_t first_pack = 0;
  std::vector<std::int64_t> samples;  // of the step's packs, in list order
  std::string bad;                    // why the step was skipped; empty: it was not
};

/// Held-out samples under the weights of a step, the same on every rank.
struct ValidationReport {
  std::int64_t step = 0, samples = 0, tokens = 0;
  std::vector<std::int64_t> slots;                          // K
  std::vector<double> step_loss, match, cumulative, alpha;  // K; alpha: mean overlap of both distributions
  double seconds = 0;
};

/// Called on rank 0 only. May throw: every rank then ends with that error, at the latest in the next step, and saves no more.
struct TrainerHooks {
  std::function<void(const StepReport&)> on_step{};
  std::function<void(std::int64_t step, const ckpt::Saved&)> on_save{};
  std::function<void(const ValidationReport&)> on_validation{};
};

class Trainer {
 public:
  /// `loss_counts[sample * K + k]`: n_k contribution of each dataset sample. All references must outlive the trainer. Local.
  Trainer(const comm::Comm& world, comm::Transport& transport, const draft::DrafterShape& shape, const draft::TargetHead& target,
          const interchange::VocabMap& vocab, dataset::PackList& packs, std::span<const std::int64_t> loss_counts,
          PackSource& source, TrainerOptions options, c10::Device device, c10::ScalarType dtype);
  ~Trainer();

  /// Starts from `initial` (fp32 flat, the same on all ranks). Collective.
  void start(const at::Tensor& initial);
  /// Goes on from a checkpoint. Identity fields named in `allowed` may differ; returns one line for each that does. Throws
  /// RefusedError naming the fields that differ otherwise, DataError for a damaged chunk. Collective.
  std::vector<std::string> resume(const ckpt::Checkpoint& checkpoint, const std::set<std::string>& allowed = {});

  enum class End { finished, stopped };
  /// Runs to total_steps or a stop request; saves at the end either way (unless no step was made since the last save). Periodic
  /// saves go on in a thread. A bad step (loss or gradient not finite, or a loss spike) is skipped or ends in DataError after a
  /// save. Throws CheckpointError on all ranks when a save failed on any, and on all what a hook threw. Collective.
  End run(stop::StopToken& stop, const TrainerHooks& hooks);

  std::int64_t step() const;
  /// SHA-256 over the fp32 masters, the same on every rank. Collective.
  std::string weights_sha256() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::train
