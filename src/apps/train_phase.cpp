// SPDX-License-Identifier: Apache-2.0
#include "train_phase.hpp"

#include <cmath>
#include <optional>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/device/device.hpp>
#include <aerie/draft/drafter.hpp>
#include <aerie/train/store_source.hpp>
#include <aerie/train/trainer.hpp>

#include "model_inputs.hpp"
#include "phase_inputs.hpp"

namespace aerie::apps {
namespace {

/// n_k contributions of every dataset sample, [samples * K]; ranks share the reading. Collective over world.
std::vector<std::int64_t> loss_counts(const comm::Comm& world, const dataset::Dataset& data,
                                      const std::vector<std::int64_t>& samples, std::int64_t K, dataset::MaskAlignment alignment,
                                      dataset::Normalize normalize) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(data.size() * K), 0);
  comm::agree_after(world, "count loss slots", [&] {
    dataset::Tokens tokens;
    for (std::size_t i = static_cast<std::size_t>(world.rank()); i < samples.size();
         i += static_cast<std::size_t>(world.size())) {
      data.read(samples[i], tokens);
      const auto n = dataset::loss_slot_counts(tokens.mask, K, alignment, normalize);
      std::copy(n.begin(), n.end(), table.begin() + samples[i] * K);
    }
  });
  world.sum(std::span(table));
  return table;
}

/// The newest checkpoint that verifies, or nothing when the run has never had one. Rank 0 chooses, all open the same. Collective
/// over world.
std::optional<ckpt::Checkpoint> choose_checkpoint(const ProgramContext& context, const TrainFlags& flags) {
  const auto& root = context.config.checkpoint_dir();
  std::string chosen;
  comm::agree_after(context.world, "choose a checkpoint", [&] {
    if (!context.world.is_root()) return;
    ckpt::remove_leftovers(root);
    if (flags.fresh) {
      if (!ckpt::list_steps(root).empty())
        throw base::RefusedError(fmt::format("--fresh, but {} holds checkpoints", root.string()),
                                 "move them away, or leave --fresh out to go on");
      context.ledger.decision("fresh-start", base::Json::object());
      return;
    }
    const auto found = ckpt::latest(root, true, [](const std::string& line) { base::log_warning(line); });
    if (found) {
      chosen = found->path.string();
      return;
    }
    const auto state = report::replay(context.ledger.read());
    if (ckpt::ever_had_checkpoint(root) || state.last_checkpoint_step >= 0)
      throw base::RefusedError(fmt::format("{}: this run has had checkpoints, but none verifies now", root.string()),
                               "restore one from a backup; --fresh starts over once no step-* directory is left");
  });
  chosen = context.world.broadcast(chosen);
  std::optional<ckpt::Checkpoint> checkpoint;
  comm::agree_after(context.world, "open the checkpoint", [&] {
    if (!chosen.empty()) checkpoint = ckpt::open(chosen);
  });
  return checkpoint;
}

/// Resumes from the newest checkpoint whose every chunk is whole; one that is not is set aside and the one before it taken.
/// Nothing when the run starts fresh. Collective over world.
std::optional<ckpt::Checkpoint> load_newest(const ProgramContext& context, const TrainFlags& flags, train::Trainer& trainer) {
  for (;;) {
    auto checkpoint = choose_checkpoint(context, flags);  // collective over world
    if (!checkpoint) return std::nullopt;
    // resume() agrees on its outcome: every rank sees the same error here.
    const auto error = base::capture([&] { trainer.resume(*checkpoint); });
    if (!error) return checkpoint;
    if (error->code() != base::ExitCode::data) throw base::Error(*error);
    comm::agree_after(context.world, "set a damaged checkpoint aside", [&] {  // collective over world
      if (!context.world.is_root()) return;
      const auto bad = ckpt::set_aside(checkpoint->path);
      base::log_warning(
          fmt::format("{}; renamed to {}, going on from the checkpoint before it", error->what(), bad.filename().string()));
    });
  }
}

void guard_progress(const ProgramContext& context, const TrainFlags& flags) {
  comm::agree_after(context.world, "no-progress guard", [&] {
    if (!context.world.is_root()) return;
    if (flags.reset_attempts) context.ledger.decision("reset-attempts", {{"program", "aerie-train"}});
    const auto n = report::attempts_without_progress(context.ledger.read(), "aerie-train");
    if (n >= 3)
      throw base::NoProgressError(fmt::format("{} attempts of train in a row made no progress", n),
                                  "repair the cause (aerie status), then start with --reset-attempts");
  });
}

train::TrainerOptions trainer_options(const ProgramContext& context) {
  const auto& t = context.config.train;
  train::TrainerOptions o;
  o.unroll.ttt_steps = t.ttt_steps;
  o.unroll.alignment = dataset::mask_alignment_from_name(t.mask_alignment);
  o.unroll.oov = draft::oov_from_name(t.oov);
  o.step_weights = t.step_weights;
  o.packs_per_step = t.packs_per_step;
  o.lr = t.lr;
  o.min_lr = t.min_lr;
  o.warmup = t.warmup;
  o.beta1 = t.betas[0];
  o.beta2 = t.betas[1];
  o.eps = t.eps;
  o.weight_decay = t.weight_decay;
  o.clip = t.clip;
  o.save_every_steps = t.save_every_steps;
  o.save_every_seconds = t.save_every_seconds;
  o.keep = t.keep;
  o.keep_every = t.keep_every;
  o.attempt = context.attempt;
  o.checkpoints = context.config.checkpoint_dir();
  return o;
}

}  // namespace

int train_phase(const ProgramContext& context, const TrainFlags& flags) {
  const auto& c = context.config;
  const auto& world = context.world;
  guard_progress(context, flags);  // collective over world
  device::setup_compute(c.run.threads);
  const auto device = device::choose_device(c.target.device, world);  // collective over world
  const auto dtype = device::choose_dtype(c.train.dtype, device);

  std::optional<io::Store> store;
  std::optional<dataset::Dataset> data;
  interchange::DrafterShape shape;
  interchange::VocabMap vocab;
  draft::TargetHead head;
  std::vector<std::int64_t> samples;
  at::Tensor initial;
  comm::agree_after(world, "open store and target", [&] {  // collective over world
    const auto dir = interchange::ModelDirectory::open(c.target.path);
    const auto target = interchange::read_target_config(dir);
    data = dataset::Dataset::open(c.dataset_file());
    shape = drafter_shape(c, target);
    store = io::Store::open(c.store_dir());
    check_store(*store, store_identity(c, dir, target, *data));
    if (!io::complete_marker_holds(*store))
      throw base::RefusedError(fmt::format("{} is not marked complete", c.store_dir().string()),
                               fmt::format("aerie run {} --to verify says what is missing and why", c.run_dir.string()));
    vocab = interchange::read_vocab_map(c.run_dir / "vocab.safetensors");
    interchange::check_vocab_map(vocab, (c.run_dir / "vocab.safetensors").string());
    if (vocab.draft_size() != shape.draft_vocab_size || vocab.target_size() != shape.vocab_size)
      throw base::RefusedError(fmt::format("vocab.safetensors maps {} of {} tokens, the configuration wants {} of {}",
                                           vocab.draft_size(), vocab.target_size(), shape.draft_vocab_size, shape.vocab_size),
                               fmt::format("run `aerie vocab {}` again", c.run_dir.string()));
    samples = training_samples(c, *data, *store);
    head = draft::load_target_head(dir, target, device, dtype);
    initial = draft::initial_weights(
        shape, c.train.seed,
        draft::load_target_head(dir, target, c10::Device(c10::DeviceType::CPU), c10::ScalarType::Float).lm_head, vocab);
  });

  std::vector<std::int64_t> lengths(static_cast<std::size_t>(store->size()));
  for (std::int64_t i = 0; i < store->size(); ++i) lengths[static_cast<std::size_t>(i)] = store->length(i);
  dataset::PackList packs(samples, lengths, c.train.seed, c.train.pack_tokens);
  auto options = trainer_options(context);
  const auto per_epoch = packs.packs_in_epoch(0);
  options.total_steps =
      c.train.steps > 0
          ? c.train.steps
          : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(c.train.epochs * static_cast<double>(per_epoch) /
                                                                          static_cast<double>(options.packs_per_step))));
  const auto table = loss_counts(world, *data, samples, c.train.ttt_steps, options.unroll.alignment,
                                 dataset::normalize_from_name(c.train.normalize));
  options.identity = config::result_keys(c);
  options.identity["store_uuid"] = store->uuid();
  options.identity["dataset_hash"] = data->hash();
  options.identity["samples_hash"] = samples_hash(samples);
  options.identity["vocab_hash"] = interchange::vocab_hash(vocab);
  options.identity["total_steps"] = options.total_steps;
  options.identity["compute"] =
      fmt::format("{} {}", device.is_cpu() ? "cpu" : "cuda", dtype == c10::ScalarType::Float ? "fp32" : "bf16");

  const auto transport = comm::make_mpi_transport(world);
  train::StoreSource source(*store, head, device, dtype);
  train::Trainer trainer(world, *transport, shape, head, vocab, packs, table, source, options, device, dtype);
  const auto checkpoint = load_newest(context, flags, trainer);  // collective over world
  if (!checkpoint) trainer.start(initial);                       // collective over world
  initial.reset();

  std::optional<report::Metrics> metrics;
  comm::agree_after(world, "open metrics", [&] {  // collective over world
    if (world.is_root()) metrics.emplace(c.run_dir / "metrics.jsonl", trainer.step());
  });
  if (world.is_root()) {
    base::log_info(
        fmt::format("{} parameters, {} samples in {} packs an epoch, steps {}..{} of {} packs, {} rank{} ({}), {} transport",
                    base::format_count(static_cast<double>(draft::parameter_count(shape))), samples.size(), per_epoch,
                    trainer.step(), options.total_steps, options.packs_per_step, world.size(), world.size() == 1 ? "" : "s",
                    device::describe(device), transport->name()));
    if (checkpoint) base::log_info(fmt::format("going on from {}", checkpoint->path.string()));
    context.ledger.phase(report::Phase::train, report::PhaseState::running);
  }

  const auto first_step = trainer.step();
  std::int64_t tokens = 0;
  double seconds = 0;
  base::Progress progress("step", "steps", options.total_steps);
  const auto end = trainer.run(
      context.stop,
      [&](const train::StepReport& r) {
        tokens += r.tokens;
        seconds += r.seconds;
        metrics->write({{"step", r.step},
                        {"lr", r.lr},
                        {"loss", r.loss},
                        {"step_loss", r.step_loss},
                        {"match", r.match},
                        {"cumulative", r.cumulative},
                        {"grad_norm", r.grad_norm},
                        {"tokens", r.tokens},
                        {"seconds", r.seconds},
                        {"waiting_s", r.waiting_s},
                        {"time", base::unix_now()}});
        progress.update(r.step, tokens, 0, fmt::format("loss {:.3f} match {:.3f}", r.loss, r.match.front()));
        context.status.update({{"phase", "train"},
                               {"step", r.step},
                               {"total", options.total_steps},
                               {"done", r.step},
                               {"loss", r.loss},
                               {"rate_tokens_per_s", seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0}});
      },
      [&](std::int64_t step, const ckpt::Saved& saved) {
        context.ledger.checkpoint_published(step, saved.path.string(), saved.manifest_hash);
        base::log_info(fmt::format("checkpoint {} in {:.1f} s", saved.path.string(), saved.seconds));
      });

  if (world.is_root()) {
    base::Json evidence{{"step", trainer.step()},
                        {"total_steps", options.total_steps},
                        {"tokens", tokens},
                        {"seconds", seconds},
                        {"weights_sha256", trainer.weights_sha256()},
                        {"inputs", phase_inputs(c, report::Phase::train)}};
    context.end_details["progress"] = trainer.step() > first_step;
    context.end_details["done"] = trainer.step();
    context.ledger.phase(report::Phase::train,
                         end == train::Trainer::End::finished ? report::PhaseState::complete : report::PhaseState::interrupted,
                         evidence);
    context.status.update(
        {{"phase", "train"}, {"step", trainer.step()}, {"total", options.total_steps}, {"done", trainer.step()}}, true);
    base::log_info(fmt::format("weights {}", trainer.weights_sha256()));
  }
  if (end == train::Trainer::End::stopped)
    throw base::StopRequested(fmt::format("stopped by {} after step {}",
                                          context.stop.reason().empty() ? "another rank" : context.stop.reason(), trainer.step()),
                              "run the same command again: it goes on where it was");
  return 0;
}

}  // namespace aerie::apps
