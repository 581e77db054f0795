// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/trainer.hpp>

#include "trainer_impl.hpp"
#include "watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/fault.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>

namespace aerie::train {
namespace {

/// One line per field in which two flat JSON objects differ, except the allowed ones, whose lines go into `changes`. A field that
/// the checkpoint's program did not know yet had its default.
std::vector<std::string> differing_fields(const base::Json& found, const base::Json& expected, const base::Json& defaults,
                                          const std::set<std::string>& allowed, std::vector<std::string>& changes) {
  std::vector<std::string> out;
  const auto say = [&](const std::string& key, std::string line) {
    (allowed.contains(key) ? changes : out).push_back(std::move(line));
  };
  for (const auto& [key, value] : expected.items())
    if (!found.contains(key) ? defaults.value(key, base::Json()) != value : found[key] != value)
      say(key, fmt::format("{}: checkpoint {}, now {}", key, found.contains(key) ? found[key].dump() : "nothing", value.dump()));
  for (const auto& [key, value] : found.items())
    if (!expected.contains(key)) say(key, fmt::format("{}: checkpoint {}, now nothing", key, value.dump()));
  return out;
}

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Trainer::Impl::Impl(const comm::Comm& w, comm::Transport& t, const draft::DrafterShape& s, const draft::TargetHead& th,
                    const interchange::VocabMap& v, dataset::PackList& p, std::span<const std::int64_t> lc, PackSource& src,
                    TrainerOptions o, c10::Device d, c10::ScalarType dt)
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
      optimizer(w, t, draft::parameter_count(s), d),
      saver(w, options, optimizer, d),
      watch(options.spike_factor) {
  const auto n = draft::parameter_count(shape);
  const auto padded = optimizer.sharding().padded();
  flat_padded = at::zeros({padded}, at::TensorOptions(device).dtype(dtype));
  weights = draft::view_weights(shape, flat_padded.narrow(0, 0, n));
  grad_padded = at::zeros({padded}, at::TensorOptions(device).dtype(at::kFloat));
  grad_flat = grad_padded.narrow(0, 0, n);
  grads = draft::view_weights(shape, grad_flat);
  if (!options.fast_reduce) sum = at::zeros({padded}, at::TensorOptions(device).dtype(at::kLong));
}

base::Json Trainer::Impl::position() const {
  return {{"step", step},       {"packs_consumed", packs_consumed}, {"losses", watch.state()},
          {"skipped", skipped}, {"skipped_in_row", skipped_in_row}, {"validated", validated}};
}

void Trainer::Impl::set_position(const base::Json& position) {
  step = position.at("step").get<std::int64_t>();
  packs_consumed = position.at("packs_consumed").get<std::int64_t>();
  watch.restore(position.value("losses", base::Json{}));
  skipped = position.value("skipped", std::int64_t{0});
  skipped_in_row = position.value("skipped_in_row", std::int64_t{0});
  validated = position.value("validated", std::int64_t{-1});
}

Trainer::Trainer(const comm::Comm& world, comm::Transport& transport, const draft::DrafterShape& shape,
                 const draft::TargetHead& target, const interchange::VocabMap& vocab, dataset::PackList& packs,
                 std::span<const std::int64_t> loss_counts, PackSource& source, TrainerOptions options, c10::Device device,
                 c10::ScalarType dtype)
    : impl_(std::make_unique<Impl>(world, transport, shape, target, vocab, packs, loss_counts, source, std::move(options), device,
                                   dtype)) {}
Trainer::~Trainer() = default;

std::int64_t Trainer::step() const { return impl_->step; }

void Trainer::start(const at::Tensor& initial) {
  impl_->optimizer.reset(initial);
  impl_->optimizer.gather_weights(impl_->flat_padded);  // collective over world
}

std::vector<std::string> Trainer::resume(const ckpt::Checkpoint& checkpoint, const std::set<std::string>& allowed) {
  auto& t = *impl_;
  std::vector<std::string> changes;
  comm::agree_after(t.world, "resume", [&] {  // collective over world
    const auto differences =
        differing_fields(checkpoint.manifest.at("identity"), t.options.identity, t.options.identity_defaults, allowed, changes);
    if (!differences.empty())
      throw base::RefusedError(fmt::format("{} was made with another configuration or data:\n  {}", checkpoint.path.string(),
                                           fmt::join(differences, "\n  ")),
                               "restore these values, allow a change with --allow-change=FIELD, or start a new run directory");
    t.optimizer.load(checkpoint);
    t.set_position(checkpoint.manifest.at("position"));
  });
  t.saver.loaded(t.step);
  t.optimizer.gather_weights(t.flat_padded);  // collective over world
  return changes;
}

Trainer::End Trainer::run(stop::StopToken& stop, const TrainerHooks& hooks) {
  const c10::NoGradGuard no_grad;
  auto& t = *impl_;
  const bool root = t.world.is_root();
  Watchdog watchdog(Watchdog::limit_from_environment());
  bool serving = false;  // RUN/save-now is there, and its save is running
  // What a hook throws: rank 0 is among collectives, so that it is kept for the next place where all ranks agree.
  std::optional<base::Error> trouble;
  const auto report_to = [&](const auto& hook, const auto&... what) {
    if (!root || !hook) return;
    if (auto error = base::capture([&] { hook(what...); }); error && !trouble) trouble = std::move(error);
  };
  t.saver.begin([&](std::int64_t step, const ckpt::Saved& saved) {
    report_to(hooks.on_save, step, saved);
    if (trouble) return false;
    if (serving) stop.save_done();
    serving = false;
    return true;
  });
  // A request seen before the first step leads to no step at all; later ones ride on a step's own reduction.
  bool stopped = stop.agree(t.world) == stop::Request::stop;  // collective over world
  const auto validate = [&] {
    watchdog.pet("validation");
    ValidationReport report;
    if (!t.validate(stop, report)) return false;  // collective over world
    report_to(hooks.on_validation, report);
    return true;
  };
  if (!stopped && t.validation_due()) stopped = !validate();  // the attempt before was stopped between step and validation
  while (t.step < t.options.total_steps && !stopped) {
    auto request = stop.poll();
    if (request == stop::Request::save_now && serving) request = stop::Request::none;
    const bool file_asks = request == stop::Request::save_now;
    if (request == stop::Request::none && root && t.saver.due_by_time()) request = stop::Request::save_now;
    StepReport report;
    watchdog.pet("a step");
    base::fault_point("train.step");
    const auto outcome = t.train_step(report, request, stop, trouble);  // collective over world
    if (outcome.bad) {
      t.saver.finish(-1);                                                                        // collective over world
      if (t.step > 0 && t.saver.saved_step() != t.step) t.saver.save_now(t.step, t.position());  // collective over world
      throw base::Error(*outcome.bad);
    }
    report_to(hooks.on_step, report);
    watchdog.pet("a save");
    t.saver.after_step(outcome.all_ready, report.seconds);  // collective over world
    stopped = outcome.request == stop::Request::stop;
    stop.set_lead_time(2 * t.saver.save_seconds() + report.seconds + 10.0);
    if (!stopped && t.validation_due()) stopped = !validate();
    const bool asked = outcome.request == stop::Request::save_now;
    if (!stopped && t.step < t.options.total_steps && (asked || t.saver.due_by_steps(t.step))) {
      t.saver.start(t.step, t.position(), report.seconds);  // collective over world
      serving = file_asks;
    }
    if (t.options.kill_at == t.step) ::kill(::getpid(), SIGKILL);
  }
  comm::agree(t.world, "report", trouble);  // collective over world
  watchdog.pet("the last save");
  t.saver.finish(-1);                                                                        // collective over world
  if (t.step > 0 && t.saver.saved_step() != t.step) t.saver.save_now(t.step, t.position());  // collective over world
  t.saver.wait_for_retention();
  comm::agree(t.world, "report", trouble);                               // collective over world; that save was reported too
  if (root && stop.poll() == stop::Request::save_now) stop.save_done();  // the last save is what was asked for
  return t.step >= t.options.total_steps ? End::finished : End::stopped;
}

std::string Trainer::weights_sha256() const {
  base::Sha256 h;
  const auto masters = impl_->optimizer.gather_masters();  // collective over world
  h.update(std::as_bytes(floats(masters)));
  return h.finish_tagged();
}

}  // namespace aerie::train
