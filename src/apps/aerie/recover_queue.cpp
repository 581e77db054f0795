// SPDX-License-Identifier: Apache-2.0
#include "recover_queue.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "slurm_queue.hpp"

namespace aerie::apps {
namespace {
CommandEnd scontrol(std::vector<std::string> words) {
  words.insert(words.begin(), {"timeout", "-k", "1", "30", "scontrol"});
  return capture_output(words, true);
}
}  // namespace

HeldJobs::HeldJobs(const report::RunState& state) : since_(base::unix_now()) {
  const auto queue = jobs_in_queue(state);
  if (!queue) return;
  for (const auto& [id, job] : *queue) {
    if (job.state == "PENDING") continue;
    throw base::RefusedError(fmt::format("job {} of this run is {}", id, job.state),
                             fmt::format("wait for its end, or `scancel {}`, then start again", id));
  }
  if (queue->empty()) return;
  held_ = true;
  watch();
  try {
    for (const auto& [id, job] : *queue) {
      hold(job.id);
      if (job.restarts > 0) again_.push_back(job.id);
    }
  } catch (...) {
    let_go();
    throw;
  }
}

void HeldJobs::hold(const std::string& id) {
  {
    const std::lock_guard guard(mutex_);
    ids_.push_back(id);  // before it is held: a signal must find it
  }
  if (const auto end = scontrol({"hold", id}); end.code != 0)
    throw base::RefusedError(fmt::format("job {} of this run cannot be held: {}", id, end.out), "scancel " + id);
}

HeldJobs::~HeldJobs() {
  if (const auto error = base::capture([&] { let_go(); })) base::log_warning(error->what());
}

/// The signals are kept from all threads but one, which waits for them: there any function may be called.
void HeldJobs::watch() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, number);
  ::pthread_sigmask(SIG_BLOCK, &ending, &before_);
  watcher_ = std::thread([this, ending] {
    const timespec moment{0, 100'000'000};
    while (!done_) {
      if (::sigtimedwait(&ending, nullptr, &moment) < 0) continue;
      release_all();
      std::fputs("error: stopped; the run's jobs in the queue are let go (run the same command again)\n", stderr);
      ::_exit(static_cast<int>(base::ExitCode::stopped));
    }
  });
}
void HeldJobs::unwatch() {
  if (!watcher_.joinable()) return;
  done_ = true;
  watcher_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void HeldJobs::release_all() const {
  const std::lock_guard guard(mutex_);
  for (const auto& id : ids_)
    if (const auto end = scontrol({"release", id}); end.code != 0)
      base::log_warning(fmt::format("job {} is still held: {}; `scontrol release {}`", id, end.out, id));
}

void HeldJobs::let_go() {
  if (!held_) return;
  held_ = false;
  release_all();
  unwatch();
  // One that starts in the first seconds after it was put back can be ended together with what is left of its former self.
  constexpr double settle_s = 4;
  if (const double wait = since_ + settle_s - base::unix_now(); !again_.empty() && wait > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  for (const auto& id : again_) scontrol({"update", "JobId=" + id, "StartTime=now"});
}

}  // namespace aerie::apps
