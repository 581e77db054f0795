// SPDX-License-Identifier: Apache-2.0
#include <aerie/ckpt/background_save.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <aerie/base/error.hpp>

#include "save_steps.hpp"

namespace aerie::ckpt {
namespace {
double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

SaveRequest staged(SaveRequest request, std::span<std::byte> staging, const CopyBytes& copy) {
  std::size_t at = 0;
  for (auto& chunk : request.chunks) {
    base::expect(staging.size() - at >= chunk.bytes.size(), "the staging memory holds every chunk of this rank");
    const auto to = staging.subspan(at, chunk.bytes.size());
    if (copy)
      copy(chunk.bytes, to);
    else
      std::memcpy(to.data(), chunk.bytes.data(), to.size());
    chunk.bytes = to;
    at += to.size();
  }
  return request;
}
}  // namespace

struct BackgroundSave::Impl {
  comm::Comm comm;
  double start = now_s();
  std::int64_t step;
  SaveSteps steps;
  enum class Stage { writing, publishing } stage = Stage::writing;
  std::atomic<bool> idle{true};
  std::thread thread;
  double blocked_s = 0;

  Impl(const comm::Comm& c, SaveRequest request) : comm(c), step(request.step), steps(c, std::move(request)) {}
  ~Impl() {
    steps.cancel();
    if (thread.joinable()) thread.join();
  }

  template <class F>
  void in_thread(F&& f) {
    idle = false;
    sigset_t all, before;  // signals are the main thread's: the new thread inherits a full mask
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this, f = std::forward<F>(f)] {
      f();
      idle = true;
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
};

BackgroundSave::BackgroundSave(const comm::Comm& comm, SaveRequest request, std::span<std::byte> staging, const CopyBytes& copy) {
  const double start = now_s();
  impl_ = std::make_unique<Impl>(comm, staged(std::move(request), staging, copy));
  impl_->start = start;
  if (impl_->steps.begin())  // collective over comm
    impl_->in_thread([steps = &impl_->steps] { steps->write(); });
  else
    impl_->stage = Impl::Stage::publishing;  // it is there already
  impl_->blocked_s = now_s() - start;
}
BackgroundSave::~BackgroundSave() = default;

std::int64_t BackgroundSave::step() const { return impl_->step; }
bool BackgroundSave::ready() const { return impl_->idle; }

std::optional<Saved> BackgroundSave::advance() {
  auto& s = *impl_;
  const double start = now_s();
  if (s.thread.joinable()) s.thread.join();
  if (s.stage == Impl::Stage::writing) {
    s.steps.agree_written();  // collective over comm
    s.stage = Impl::Stage::publishing;
    if (s.comm.is_root()) s.in_thread([steps = &s.steps] { steps->publish(); });
    s.blocked_s += now_s() - start;
    return std::nullopt;
  }
  auto saved = s.steps.end();  // collective over comm
  s.blocked_s += now_s() - start;
  saved.elapsed_s = now_s() - s.start;
  saved.blocked_s = s.blocked_s;
  return saved;
}

Saved BackgroundSave::wait() {
  for (;;)
    if (auto saved = advance()) return *saved;  // collective over comm
}

}  // namespace aerie::ckpt
