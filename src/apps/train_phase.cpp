// SPDX-License-Identifier: Apache-2.0
#include "train_phase.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <aerie/base/fault.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/dataset/token_counts.hpp>
#include <aerie/device/device.hpp>
#include <aerie/draft/drafter.hpp>
#include <aerie/train/store_source.hpp>
#include <aerie/train/trainer.hpp>

#include "model_inputs.hpp"
#include "phase_inputs.hpp"
#include "store_view.hpp"
#include "train_reports.hpp"
#include "train_resume.hpp"

namespace aerie::apps {
namespace {

/// n_k contributions of every dataset sample, [samples * K]; ranks share the reading, in rounds, so that a stop that any rank
/// sees ends all of them after the same round. Collective over world.
std::vector<std::int64_t> loss_counts(const ProgramContext& context, const dataset::Dataset& data,
                                      const std::vector<std::int64_t>& samples, std::int64_t K, dataset::MaskAlignment alignment,
                                      dataset::Normalize normalize) {
  constexpr std::size_t round = 256;  // samples a rank reads between two looks: a fraction of a second
  const auto& world = context.world;
  const auto R = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> table(static_cast<std::size_t>(data.size() * K), 0);
  for (std::size_t begin = 0; begin < samples.size(); begin += round * R) {
    end_if_stopped(context, "counting loss slots");     // collective over world
    comm::agree_after(world, "count loss slots", [&] {  // collective over world
      base::fault_point("train.count");
      dataset::Tokens tokens;
      const auto end = std::min(samples.size(), begin + round * R);
      for (std::size_t i = begin + static_cast<std::size_t>(world.rank()); i < end; i += R) {
        data.read(samples[i], tokens);
        const auto n = dataset::loss_slot_counts(tokens.mask, K, alignment, normalize);
        std::copy(n.begin(), n.end(), table.begin() + samples[i] * K);
      }
    });
  }
  world.sum(std::span(table));
  return table;
}

/// Packs of the held-out samples whose states are in the store, in the order of the dataset.
std::vector<dataset::Pack> validation_packs(const config::Config& c, const dataset::Dataset& data, const io::Store& store,
                                            std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> held_out;
  for (std::int64_t i = 0; i < store.size(); ++i)
    if (store.state(i).kind == io::StateKind::done && dataset::is_held_out(data.id(i), c.holdout())) held_out.push_back(i);
  if (held_out.empty())
    throw base::DataError("eval.every_steps is set, but no sample is held out", "a larger eval.holdout, or eval.every_steps = 0");
  return dataset::make_packs(held_out, lengths, c.train.pack_tokens);
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
  o.settings = config::to_json(context.config);
  o.fast_reduce = t.reduce == "fast";
  o.skip_bad_steps = t.bad_step == "skip";
  o.spike_factor = t.spike_factor;
  o.validate_every_steps = context.config.eval.every_steps;
  return o;
}

}  // namespace

namespace {

/// One kind of device and dtype on all ranks: which rank computes a pack must not matter. Collective over world.
void demand_same_compute(const comm::Comm& world, c10::Device device, c10::ScalarType dtype) {
  const auto name = device.is_cpu() ? std::string("cpu") : device::describe(device);
  const auto all = world.all_gather(fmt::format("{} {}", name.substr(0, name.find(" (cuda")), c10::toString(dtype)));
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw base::RefusedError(
          fmt::format("rank 0 computes on {}, rank {} on {}: the bits would depend on who took which pack", all[0], r, all[r]),
          "give all ranks the same kind of device; target.device = \"cuda\" refuses ranks without one");
}

}  // namespace

int train_phase(const ProgramContext& context, const TrainFlags& flags) {
  const auto& c = context.config;
  const auto& world = context.world;
  guard_progress(context, flags);  // collective over world
  static_cast<void>(allowed_changes(flags));
  comm::agree_after(world, "samples", [&] {  // collective over world
    if (!world.is_root()) return;
    if (const auto view = view_store(c)) demand_settled(c, *view);
  });
  const double lead_s = lead_seconds(c);
  check_lead_time(context, lead_s, flags.strict);  // collective over world
  device::setup_compute(c.run.threads);
  const auto device = device::choose_device(c.target.device, world);  // collective over world
  const auto dtype = device::choose_dtype(c.train.dtype, device);
  demand_same_compute(world, device, dtype);  // collective over world

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

  end_if_stopped(context, "loading the target's head");  // collective over world

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
  options.lead_s = lead_s;
  options.strict = flags.strict;
  options.kill_at = flags.kill_at;
  options.sample_name = [&](std::int64_t sample) { return data->id(sample); };
  comm::agree_after(world, "validation set", [&] {  // collective over world
    if (c.eval.every_steps > 0) options.validation_packs = validation_packs(c, *data, *store, lengths);
    if (world.is_root()) demand_space(c.checkpoint_dir(), 12.0 * static_cast<double>(draft::parameter_count(shape)));
  });
  const auto table = loss_counts(context, *data, samples, c.train.ttt_steps, options.unroll.alignment,
                                 dataset::normalize_from_name(c.train.normalize));
  options.identity = config::result_keys(c);
  options.identity_defaults = config::result_keys(config::Config{});
  options.identity["store_uuid"] = store->uuid();
  options.identity["dataset_hash"] = data->hash();
  options.identity["samples_hash"] = samples_hash(samples);
  options.identity["vocab_hash"] = interchange::vocab_hash(vocab);
  options.identity["total_steps"] = options.total_steps;
  options.identity["compute"] =
      fmt::format("{} {}", device.is_cpu() ? "cpu" : "cuda", dtype == c10::ScalarType::Float ? "fp32" : "bf16");

  const auto transport = device::make_transport(c.train.transport, world, device);  // collective over world
  train::StoreSource source(*store, head, device, dtype);
  train::Trainer trainer(world, *transport, shape, head, vocab, packs, table, source, options, device, dtype);
  const auto checkpoint = load_newest(context, flags, trainer);  // collective over world
  if (!checkpoint) trainer.start(initial);                       // collective over world
  initial.reset();

  std::optional<TrainReports> reports;
  comm::agree_after(world, "open metrics", [&] {  // collective over world
    if (world.is_root()) reports.emplace(context, *data, trainer.step(), options.total_steps);
  });
  if (world.is_root()) {
    base::log_info(
        fmt::format("{} parameters, {} samples in {} packs an epoch, steps {}..{} of {} packs, {} rank{} ({}), {} transport",
                    base::format_count(static_cast<double>(draft::parameter_count(shape))), samples.size(), per_epoch,
                    trainer.step(), options.total_steps, options.packs_per_step, world.size(), world.size() == 1 ? "" : "s",
                    device::describe(device), transport->name()));
    if (world.size() > options.packs_per_step)
      base::log_warning(fmt::format("{} ranks share {} packs a step: {} ranks have nothing to do (train.packs_per_step)",
                                    world.size(), options.packs_per_step, world.size() - options.packs_per_step));
    if (checkpoint) base::log_info(fmt::format("going on from {}", checkpoint->path.string()));
    context.ledger.phase(report::Phase::train, report::PhaseState::running);
  }

  const auto first_step = trainer.step();
  auto end = train::Trainer::End::stopped;
  try {
    end = trainer.run(context.stop, {[&](const train::StepReport& r) { reports->step(r); },  // collective over world
                                     [&](std::int64_t step, const ckpt::Saved& saved) { reports->saved(step, saved); },
                                     [&](const train::ValidationReport& r) { reports->validated(r); }});
  } catch (...) {  // whichever rank writes the attempt's end knows how far it came
    context.end_details["steps"] = trainer.step() - first_step;
    throw;
  }

  const auto weights = trainer.weights_sha256();  // collective over world
  if (world.is_root()) {
    base::Json evidence{{"step", trainer.step()},      {"total_steps", options.total_steps},
                        {"tokens", reports->tokens()}, {"seconds", reports->seconds()},
                        {"weights_sha256", weights},   {"inputs", phase_inputs(c, report::Phase::train)}};
    context.end_details["done"] = trainer.step();
    context.ledger.phase(report::Phase::train,
                         end == train::Trainer::End::finished ? report::PhaseState::complete : report::PhaseState::interrupted,
                         evidence);
    context.status.update(
        {{"phase", "train"}, {"step", trainer.step()}, {"total", options.total_steps}, {"done", trainer.step()}}, true);
    base::log_info(fmt::format("weights {}", weights));
  }
  if (end == train::Trainer::End::stopped)
    throw base::StopRequested(fmt::format("stopped by {} after step {}",
                                          context.stop.reason().empty() ? "another rank" : context.stop.reason(), trainer.step()),
                              "run the same command again: it goes on where it was");
  return 0;
}

}  // namespace aerie::apps
