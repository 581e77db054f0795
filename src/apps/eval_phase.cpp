// SPDX-License-Identifier: Apache-2.0
#include "eval_phase.hpp"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/fault.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/dataset/token_counts.hpp>
#include <aerie/device/device.hpp>
#include <aerie/eval/evaluate.hpp>
#include <aerie/report/commit_clock.hpp>
#include <aerie/target/target_model.hpp>

#include "drafter_checkpoint.hpp"
#include "model_inputs.hpp"
#include "phase_inputs.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {

/// The evaluation set's samples: a file of their own, or the held-out share of the training file.
std::vector<std::int64_t> evaluation_samples(const config::Config& c, const dataset::Dataset& data, std::int64_t limit) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    if (data.reject(i) != io::FailReason::none) continue;
    if (c.holdout() > 0 && !dataset::is_held_out(data.id(i), c.holdout())) continue;
    out.push_back(i);
    if (limit > 0 && static_cast<std::int64_t>(out.size()) == limit) break;
  }
  if (out.empty())
    throw base::DataError(fmt::format("{}: no sample to evaluate on", data.path().string()),
                          "give an evaluation file, or a larger eval.holdout");
  return out;
}

/// A drafter under evaluation.
struct Candidate {
  std::string name;
  draft::DrafterWeights weights;
  eval::Evaluation evaluation;
};

}  // namespace

int eval_phase(const ProgramContext& context, const EvalFlags& flags) {
  const auto& c = context.config;
  const auto& world = context.world;
  comm::agree_after(world, "samples", [&] {  // collective over world
    if (!world.is_root()) return;
    if (const auto view = view_store(c)) demand_settled(c, *view);
  });
  device::setup_compute(c.run.threads);
  const auto device = device::choose_device(c.target.device, world);  // collective over world
  std::optional<dataset::Dataset> data;
  std::optional<target::TargetModel> model;
  std::optional<ckpt::Checkpoint> checkpoint;
  interchange::DrafterShape shape;
  interchange::VocabMap vocab;
  draft::TargetHead head;
  std::vector<std::int64_t> samples;
  std::vector<Candidate> candidates;
  // A chain may be longer than the unroll of training.
  const auto steps = std::max(c.train.ttt_steps, *std::max_element(c.eval.chain.begin(), c.eval.chain.end()));
  const auto dtype = device::choose_dtype(c.target.dtype, device);
  const bool whole = flags.limit == 0;  // a look at a few samples leaves the phase as it is
  if (world.is_root() && whole) context.ledger.phase(report::Phase::eval, report::PhaseState::running);
  comm::agree_after(world, "open target, drafter and evaluation set", [&] {  // collective over world
    const auto dir = interchange::ModelDirectory::open(c.target.path);
    const auto target_config = interchange::read_target_config(dir);
    data = dataset::Dataset::open(c.holdout() > 0 ? c.dataset_file() : c.eval_file());
    check_tokenizer(*data, dir, c);
    samples = evaluation_samples(c, *data, flags.limit);
    shape = drafter_shape(c, target_config);
    vocab = interchange::read_vocab_map(c.run_dir / "vocab.safetensors");
    interchange::check_vocab_map(vocab, (c.run_dir / "vocab.safetensors").string());
    checkpoint = find_checkpoint(c, flags.checkpoint);
    target::TargetOptions options;
    options.device = device;
    options.dtype = dtype;
    options.gemm_rows = c.target.gemm_rows > 0 ? c.target.gemm_rows : device.is_cpu() ? 256 : 4096;
    options.aux_layers = aux_layers(c, target_config);
    model = target::TargetModel::load(dir, options);
    head = draft::load_target_head(dir, target_config, device, dtype);
    const auto place = at::TensorOptions(device).dtype(dtype);
    if (!flags.no_initial)
      candidates.push_back(
          {"initial",
           draft::view_weights(
               shape, draft::initial_weights(shape, c.train.seed, head.lm_head.to(at::kCPU, at::kFloat), vocab).to(place)),
           eval::Evaluation(steps, c.eval.chain)});
    candidates.push_back(
        {"trained", draft::view_weights(shape, masters_of(*checkpoint, shape).to(place)), eval::Evaluation(steps, c.eval.chain)});
  });
  if (world.is_root())
    base::log_info(fmt::format("{} samples, checkpoint {}, {} rank{}", samples.size(), checkpoint->path.string(), world.size(),
                               world.size() == 1 ? "" : "s"));

  std::int64_t tokens = 0;
  const auto evaluate = [&](std::int64_t index) {
    dataset::Tokens sample;
    data->read(index, sample);
    const std::span<const std::int32_t> ids(sample.ids);
    const auto states = model->forward(std::span(&ids, 1));
    draft::PackBatch pack;
    pack.lengths = {static_cast<std::int64_t>(sample.ids.size())};
    pack.ids = sample.ids;
    pack.mask = sample.mask;
    // As training saw them: rounded to bf16 by the store.
    pack.aux = states[0].aux.flatten(1).to(at::kBFloat16).to(dtype);
    pack.last = states[0].last.to(at::kBFloat16).to(dtype);
    for (auto& candidate : candidates)
      candidate.evaluation.add(sample.ids, sample.mask, draft::draft_choices(shape, candidate.weights, head, vocab, pack, steps),
                               0);
    tokens += static_cast<std::int64_t>(sample.ids.size());
  };
  // Rounds of one sample a rank, so that a stop that any rank sees, or a fault of one, ends all of them after the same round.
  base::Progress progress("", "samples", static_cast<std::int64_t>(samples.size()));
  report::CommitClock clock(0, base::unix_now());
  const auto report_progress = [&](std::size_t done) {
    const auto total = samples.size();
    progress.update(static_cast<std::int64_t>(done));
    if (!world.is_root()) return;
    clock.advance(static_cast<std::int64_t>(done), base::unix_now());
    const double rate = static_cast<double>(done) / std::max(1e-9, progress.elapsed_s());
    base::Json snapshot{{"phase", "eval"}, {"done", done}, {"total", total}, {"unit", "samples"}, {"rate", rate}};
    snapshot["eta_s"] = static_cast<double>(total - done) / rate;
    clock.add_to(snapshot);
    context.status.update(snapshot);
  };
  const auto R = static_cast<std::size_t>(world.size());
  for (std::size_t begin = 0; begin < samples.size(); begin += R) {
    if (context.stop.agree(world) == stop::Request::stop)  // collective over world
      throw base::StopRequested(fmt::format("stopped after {} of {} samples", begin, samples.size()),
                                "run the same command again");
    comm::agree_after(world, "evaluate", [&] {  // collective over world
      base::fault_point("eval.sample");
      const auto mine = begin + static_cast<std::size_t>(world.rank());
      if (mine < samples.size()) evaluate(samples[mine]);
    });
    report_progress(std::min(samples.size(), begin + R));
  }

  base::Json result{{"checkpoint", checkpoint->path.filename().string()},
                    {"step", checkpoint->step},
                    {"dataset_hash", data->hash()},
                    {"weights_sha256", ckpt::vector_sha256(*checkpoint, "masters")}};
  for (auto& candidate : candidates) {
    candidate.evaluation.reduce(world);  // collective over world
    result[candidate.name] = candidate.evaluation.to_json();
  }
  tokens = world.sum(tokens);  // collective over world
  comm::agree_after(world, "write eval.json", [&] {
    if (!world.is_root()) return;
    base::publish_text(c.run_dir / "eval.json", result.dump(1) + "\n");
    context.end_details["progress"] = true;
    if (!whole) return;
    context.ledger.phase(report::Phase::eval, report::PhaseState::complete,
                         {{"samples", samples.size()},
                          {"tokens", tokens},
                          {"seconds", progress.elapsed_s()},
                          {"checkpoint", checkpoint->path.filename().string()},
                          {"tau", result["trained"]["tau"]},
                          {"inputs", phase_inputs(c, report::Phase::eval)}});
  });
  return 0;
}

}  // namespace aerie::apps
