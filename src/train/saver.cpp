// SPDX-License-Identifier: Apache-2.0
#include "saver.hpp"

#include <chrono>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/train/lead_time.hpp>

namespace aerie::train {
namespace {
double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

std::string lead_time_problem(double lead_s, double save_s, double step_s) {
  const double needed = 2 * save_s + step_s;
  if (lead_s <= 0 || needed <= lead_s) return {};
  return fmt::format(
      "a stop needs up to {:.1f} s (2 x save {:.1f} s + step {:.1f} s), but only {:.0f} s lie between the warning and the end",
      needed, save_s, step_s, lead_s);
}

Saver::Saver(const comm::Comm& world, const TrainerOptions& options, const OptimizerShard& optimizer, c10::Device device)
    : world_(world), options_(options), optimizer_(optimizer), device_(device) {}
Saver::~Saver() = default;

void Saver::loaded(std::int64_t step) { saved_step_ = loaded_step_ = step; }

void Saver::begin(Published published) {
  published_ = std::move(published);
  state_s_ = now_s();
}

bool Saver::due_by_steps(std::int64_t step) const {
  return options_.save_every_steps > 0 && step % options_.save_every_steps == 0 && step != saved_step_;
}
bool Saver::due_by_time() const {
  // A death must not cost more than the interval: counted from the last published state, and the save itself takes time.
  return options_.save_every_seconds > 0 && !running() && now_s() - state_s_ + save_s_ >= options_.save_every_seconds &&
         now_s() - state_s_ >= std::min(save_s_, options_.save_every_seconds);
}

ckpt::SaveRequest Saver::request(std::int64_t step, const base::Json& position) const {
  ckpt::SaveRequest r;
  r.root = options_.checkpoints;
  r.step = step;
  r.attempt = options_.attempt;
  r.identity = options_.identity;
  r.settings = options_.settings;
  r.position = position;
  r.vectors = optimizer_.vectors();
  r.chunks = optimizer_.chunks();
  return r;
}

void Saver::start(std::int64_t step, const base::Json& position, double step_s) {
  if (running()) {
    if (world_.is_root())
      base::log_warning(
          fmt::format("the checkpoint of step {} is not written yet: training waits; saves come too often", save_->step()));
    finish(step_s);  // collective over world
  }
  wait_for_retention();
  auto r = request(step, position);
  std::int64_t bytes = 0;
  for (const auto& c : r.chunks) bytes += static_cast<std::int64_t>(c.bytes.size());
  if (!staging_.defined() || staging_.numel() < bytes)
    staging_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(device_.is_cuda()));
  begun_s_ = now_s();
  save_ = std::make_unique<ckpt::BackgroundSave>(  // collective over world
      world_, std::move(r),
      std::span(static_cast<std::byte*>(staging_.mutable_data_ptr()), static_cast<std::size_t>(staging_.numel())),
      [this](std::span<const std::byte> from, std::span<std::byte> to) { optimizer_.copy_chunk(from, to); });
}

bool Saver::after_step(bool all_ready, double step_s) {
  if (!running() || !all_ready) return false;
  const auto saved = save_->advance();  // collective over world
  if (!saved) return false;
  const auto step = save_->step();
  save_.reset();
  done(step, *saved, step_s);
  return true;
}

void Saver::finish(double step_s) {
  if (!running()) return;
  const auto saved = save_->wait();  // collective over world
  const auto step = save_->step();
  save_.reset();
  done(step, saved, step_s);
}

void Saver::save_now(std::int64_t step, const base::Json& position) {
  if (device_.is_cuda()) {      // through the staging memory
    start(step, position, -1);  // collective over world
    finish(-1);                 // collective over world
    return;
  }
  wait_for_retention();
  begun_s_ = now_s();
  const auto saved = ckpt::save(world_, request(step, position));  // collective over world
  done(step, saved, -1);
}

void Saver::done(std::int64_t step, const ckpt::Saved& saved, double step_s) {
  saved_step_ = step;
  if (saved.seconds > 0) save_s_ = saved.seconds;  // else it was there already
  state_s_ = begun_s_;
  ++published_count_;
  if (world_.is_root() && (!published_ || published_(step, saved))) retain();
  if (step_s < 0) return;  // nothing comes after it
  step_s = static_cast<double>(world_.max(static_cast<std::int64_t>(step_s * 1e6))) * 1e-6;
  const auto problem = lead_time_problem(options_.lead_s, save_s_, step_s);
  if (problem.empty()) return;
  if (options_.strict) throw base::RefusedError(problem, lead_time_hint);
  if (world_.is_root() && !warned_) base::log_warning(problem + " (" + lead_time_hint + ")");
  warned_ = true;
}

void Saver::retain() {
  const auto loaded = published_count_ >= 2 ? -1 : loaded_step_;
  retention_ = std::async(std::launch::async, [root = options_.checkpoints, keep = options_.keep, every = options_.keep_every,
                                               loaded] { ckpt::apply_retention(root, keep, every, loaded); });
}

void Saver::wait_for_retention() {
  if (!retention_.valid()) return;
  try {
    retention_.get();
  } catch (const std::exception& e) {  // what is there too much costs space, not the run
    base::log_warning(fmt::format("old checkpoints could not be removed: {}", e.what()));
  }
}

}  // namespace aerie::train
