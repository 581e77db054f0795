// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/trainer.hpp>

#include "optimizer_shard.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/train/fixed_point.hpp>

namespace aerie::train {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::span<float> floats(const at::Tensor& t) { return {t.mutable_data_ptr<float>(), static_cast<std::size_t>(t.numel())}; }

/// One line per field in which two flat JSON objects differ.
std::vector<std::string> differing_fields(const base::Json& found, const base::Json& expected) {
  std::vector<std::string> out;
  for (const auto& [key, value] : expected.items())
    if (!found.contains(key) || found[key] != value)
      out.push_back(
          fmt::format("{}: checkpoint {}, now {}", key, found.contains(key) ? found[key].dump() : "nothing", value.dump()));
  for (const auto& [key, value] : found.items())
    if (!expected.contains(key)) out.push_back(fmt::format("{}: checkpoint {}, now nothing", key, value.dump()));
  return out;
}

}  // namespace

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
  at::Tensor masters;  // fp32 on the host, unpadded, everybody's
  at::Tensor flat;     // compute dtype on the device
  draft::DrafterWeights weights;
  at::Tensor grad_flat;  // fp32 on the device
  draft::DrafterWeights grads;
  std::vector<std::int64_t> sum;  // padded, fixed point
  std::int64_t step = 0, packs_consumed = 0, saved_step = -1, loaded_step = -1;
  double last_save_s = now_s();

  struct Prefetch {
    std::int64_t index = -1;
    std::future<draft::PackBatch> batch;
  } next;

  Impl(const comm::Comm& w, comm::Transport& t, const draft::DrafterShape& s, const draft::TargetHead& th,
       const interchange::VocabMap& v, dataset::PackList& p, std::span<const std::int64_t> lc, PackSource& src, TrainerOptions o,
       c10::Device d, c10::ScalarType dt)
      : world(w),
        transport(t),
        shape(s),
        target(th),
        vocab(v),
        packs(p),
        loss_counts(lc),
        source(src),
        options(std::move(o)),
        device(d),
        dtype(dt),
        schedule(make_schedule(options.lr, options.min_lr, options.warmup, options.total_steps)),
        optimizer(w, t, draft::parameter_count(s)) {
    const auto n = draft::parameter_count(shape);
    masters = at::zeros({n}, at::kFloat);
    flat = at::zeros({n}, at::TensorOptions(device).dtype(dtype));
    weights = draft::view_weights(shape, flat);
    grad_flat = at::zeros({n}, at::TensorOptions(device).dtype(at::kFloat));
    grads = draft::view_weights(shape, grad_flat);
    sum.assign(static_cast<std::size_t>(optimizer.sharding().padded()), 0);
  }

  void spread_masters() {
    optimizer.gather_masters(floats(masters));  // collective over world
    flat.copy_(masters);
  }

  std::int64_t K() const { return options.unroll.ttt_steps; }

  /// Pack indices of this step that this rank takes, in list order.
  std::vector<std::int64_t> own_packs(std::int64_t first) {
    std::vector<std::int64_t> costs;
    for (std::int64_t i = 0; i < options.packs_per_step; ++i) costs.push_back(packs.at(first + i).n_tokens);
    const auto dealt = dataset::deal_packs(costs, world.size());
    std::vector<std::int64_t> out;
    for (const auto i : dealt[static_cast<std::size_t>(world.rank())]) out.push_back(first + static_cast<std::int64_t>(i));
    return out;
  }

  /// The pack's states; the one after it starts loading in a thread meanwhile.
  draft::PackBatch fetch(std::int64_t index, std::int64_t after) {
    draft::PackBatch batch;
    if (next.index == index)
      batch = next.batch.get();
    else
      batch = source.load(packs.at(index));
    next.index = after;
    if (after >= 0) next.batch = std::async(std::launch::async, [this, pack = packs.at(after)] { return source.load(pack); });
    return batch;
  }

  std::string tensor_at(std::int64_t element) const {
    for (const auto& t : interchange::drafter_tensors(shape)) {
      if (element < t.elements()) return fmt::format("{}[{}]", t.name, element);
      element -= t.elements();
    }
    return "?";
  }
  std::string samples_of(std::int64_t pack) {
    return fmt::format("pack {} (samples {})", pack, fmt::join(packs.at(pack).samples, ", "));
  }

  /// n_k of the global batch: known from the data before the first forward.
  std::vector<std::int64_t> global_counts(std::int64_t first) {
    std::vector<std::int64_t> n(static_cast<std::size_t>(K()), 0);
    for (std::int64_t i = 0; i < options.packs_per_step; ++i)
      for (const auto s : packs.at(first + i).samples)
        for (std::int64_t k = 0; k < K(); ++k)
          n[static_cast<std::size_t>(k)] += loss_counts[static_cast<std::size_t>(s * K() + k)];
    return n;
  }

  /// One global step. Returns the largest stop request that any rank had seen before it. Collective over world.
  stop::Request train_step(StepReport& report, stop::Request request) {
    const double start = now_s();
    const auto first = packs_consumed;
    const auto coefficients = loss_coefficients(options.step_weights, global_counts(first));
    std::fill(sum.begin(), sum.end(), 0);
    // Per step k: slots, matches, cumulative as counts; coefficient x loss in fixed point. Then failures and requests.
    const auto k_count = static_cast<std::size_t>(K());
    std::vector<std::int64_t> totals(4 * k_count + 4, 0);

    const auto error = base::capture([&] {
      const auto mine = own_packs(first);
      const auto upcoming =
          step + 1 < options.total_steps ? own_packs(first + options.packs_per_step) : std::vector<std::int64_t>{};
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const double wait = now_s();
        const auto after = i + 1 < mine.size() ? mine[i + 1] : upcoming.empty() ? -1 : upcoming.front();
        const auto batch = fetch(mine[i], after);
        report.waiting_s += now_s() - wait;
        grad_flat.zero_();
        const auto result = draft::unroll(shape, weights, target, vocab, batch, options.unroll, coefficients, &grads);
        const auto host = grad_flat.cpu();
        const auto bad =
            add_fixed_point(floats(host), std::span(sum).first(static_cast<std::size_t>(host.numel())), options.packs_per_step);
        if (bad >= 0)
          throw base::DataError(fmt::format("step {}: gradient of {} is {} in {}", step + 1, tensor_at(bad),
                                            floats(host)[static_cast<std::size_t>(bad)], samples_of(mine[i])),
                                "look at these samples; a lower train.lr or train.clip may help");
        for (std::size_t k = 0; k < k_count; ++k) {
          const auto& s = result.steps[k];
          if (!std::isfinite(s.loss))
            throw base::DataError(
                fmt::format("step {}: loss of unroll step {} is {} in {}", step + 1, k, s.loss, samples_of(mine[i])));
          totals[k] += s.slots;
          totals[k_count + k] += s.matches;
          totals[2 * k_count + k] += s.cumulative;
          totals[3 * k_count + k] += to_fixed_point(coefficients[k] * s.loss);
        }
        totals[4 * k_count + 3] += static_cast<std::int64_t>(batch.ids.size());
      }
    });
    totals[4 * k_count] = error ? 1 : 0;
    totals[4 * k_count + 1] = request == stop::Request::stop ? 1 : 0;
    totals[4 * k_count + 2] = request == stop::Request::save_now ? 1 : 0;
    world.sum(std::span(totals));  // collective over world
    if (totals[4 * k_count] > 0) comm::agree(world, "train", error);

    AdamWOptions adam;
    adam.lr = schedule.at(step);
    adam.beta1 = options.beta1;
    adam.beta2 = options.beta2;
    adam.eps = options.eps;
    adam.weight_decay = options.weight_decay;
    adam.step = step + 1;
    report.grad_norm = optimizer.step(sum, adam, options.clip);  // collective over world
    spread_masters();
    ++step;
    packs_consumed += options.packs_per_step;

    report.step = step;
    report.lr = adam.lr;
    report.tokens = totals[4 * k_count + 3];
    const auto ratio = [](std::int64_t a, std::int64_t b) {
      return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
    };
    for (std::size_t k = 0; k < k_count; ++k) {
      const double weighted = from_fixed_point(totals[3 * k_count + k]);
      report.loss += weighted;
      report.step_loss.push_back(
          coefficients[k] > 0 ? weighted / coefficients[k] / static_cast<double>(std::max<std::int64_t>(1, totals[k])) : 0.0);
      report.match.push_back(ratio(totals[k_count + k], totals[k]));
      report.cumulative.push_back(ratio(totals[2 * k_count + k], totals[k]));
    }
    report.seconds = now_s() - start;
    if (totals[4 * k_count + 1] > 0) return stop::Request::stop;
    return totals[4 * k_count + 2] > 0 ? stop::Request::save_now : stop::Request::none;
  }

  ckpt::Saved save() {
    ckpt::SaveRequest request;
    request.root = options.checkpoints;
    request.step = step;
    request.attempt = options.attempt;
    request.identity = options.identity;
    request.position = {{"step", step}, {"packs_consumed", packs_consumed}};
    request.vectors = optimizer.vectors();
    request.chunks = optimizer.chunks();
    const auto saved = ckpt::save(world, request);  // collective over world
    saved_step = step;
    last_save_s = now_s();
    return saved;
  }
};

Trainer::Trainer(const comm::Comm& world, comm::Transport& transport, const draft::DrafterShape& shape,
                 const draft::TargetHead& target, const interchange::VocabMap& vocab, dataset::PackList& packs,
                 std::span<const std::int64_t> loss_counts, PackSource& source, TrainerOptions options, c10::Device device,
                 c10::ScalarType dtype)
    : impl_(std::make_unique<Impl>(world, transport, shape, target, vocab, packs, loss_counts, source, std::move(options), device,
                                   dtype)) {}
Trainer::~Trainer() = default;

std::int64_t Trainer::step() const { return impl_->step; }

void Trainer::start(const at::Tensor& initial) {
  impl_->optimizer.reset(floats(initial));
  impl_->spread_masters();
}

void Trainer::resume(const ckpt::Checkpoint& checkpoint) {
  auto& t = *impl_;
  comm::agree_after(t.world, "resume", [&] {  // collective over world
    const auto differences = differing_fields(checkpoint.manifest.at("identity"), t.options.identity);
    if (!differences.empty())
      throw base::RefusedError(fmt::format("{} was made with another configuration or data:\n  {}", checkpoint.path.string(),
                                           fmt::join(differences, "\n  ")),
                               "restore these values, or start a new run directory");
    t.optimizer.load(checkpoint);
    const auto& position = checkpoint.manifest.at("position");
    t.step = position.at("step").get<std::int64_t>();
    t.packs_consumed = position.at("packs_consumed").get<std::int64_t>();
  });
  t.saved_step = t.loaded_step = t.step;
  t.spread_masters();
}

Trainer::End Trainer::run(stop::StopToken& stop, const std::function<void(const StepReport&)>& on_step,
                          const std::function<void(std::int64_t, const ckpt::Saved&)>& on_save) {
  const c10::NoGradGuard no_grad;
  auto& t = *impl_;
  double save_s = 5.0;  // until one was measured
  const auto save = [&] {
    const auto saved = t.save();
    save_s = saved.seconds;
    if (!t.world.is_root()) return;
    if (on_save) on_save(t.step, saved);  // recorded before anything older is removed
    ckpt::apply_retention(t.options.checkpoints, t.options.keep, t.options.keep_every, t.loaded_step);
  };
  // A request seen before the first step leads to no step at all; later ones ride on a step's own reduction.
  bool stopped = stop.agree(t.world) == stop::Request::stop;  // collective over world
  t.last_save_s = now_s();
  while (t.step < t.options.total_steps && !stopped) {
    auto request = stop.poll();
    const bool save_due = t.options.save_every_seconds > 0 && now_s() - t.last_save_s >= t.options.save_every_seconds;
    if (request == stop::Request::none && t.world.is_root() && save_due) request = stop::Request::save_now;
    StepReport report;
    const auto agreed = t.train_step(report, request);
    if (t.world.is_root() && on_step) on_step(report);
    stopped = agreed == stop::Request::stop;
    stop.set_lead_time(2 * save_s + report.seconds + 10.0);
    const bool due = t.options.save_every_steps > 0 && t.step % t.options.save_every_steps == 0;
    if (!stopped && t.step < t.options.total_steps && (due || agreed == stop::Request::save_now)) {
      save();
      if (t.world.is_root()) stop.save_done();
    }
  }
  if (t.step > 0 && t.saved_step != t.step) save();
  return t.step >= t.options.total_steps ? End::finished : End::stopped;
}

std::string Trainer::weights_sha256() const {
  base::Sha256 h;
  const auto v = floats(impl_->masters);
  h.update(std::as_bytes(v));
  return h.finish_tagged();
}

}  // namespace aerie::train
