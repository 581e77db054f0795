// SPDX-License-Identifier: Apache-2.0
#include "recover_queue.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <algorithm>
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

void demand_pending(const Queue& queue) {
  for (const auto& [id, job] : queue)
    if (job.state != "PENDING")
      throw base::RefusedError(fmt::format("job {} of this run is {}", id, job.state),
                               fmt::format("wait for its end, or `scancel {}`, then start again", id));
}
}  // namespace

HeldJobs::HeldJobs(const report::RunState& state) : since_(base::unix_now()) {
  if (state.jobs.empty()) return;
  const auto all = jobs_in_queue(state);
  if (!all) {
    if (capture_output({"sh", "-c", "command -v squeue"}).code != 0) return;  // no Slurm here
    throw base::RefusedError("Slurm does not say whether jobs of this run are in its queue",
                             "try again when `squeue` answers: a job that started meanwhile would be refused the run");
  }
  Queue queue;  // by the submission's ids: an array is held and let go as a whole
  const auto own = base::this_process().job;
  for (const auto& j : state.jobs)
    if (const auto* job = report::find_job(*all, j.job); job && j.job != own) {
      queue[j.job] = *job;
      base::capture(
          [&] { phases_.push_back(report::phase_from_name(j.phase)); });  // one of a newer version does none that we know
    }
  demand_pending(queue);
  if (queue.empty()) return;
  held_ = true;
  watch();
  try {
    for (const auto& [id, job] : queue) {
      hold(id);
      if (job.restarts > 0) again_.push_back(id);
    }
    // One may have started between the question and its hold.
    const auto now = jobs_in_queue(state);
    for (auto& [id, job] : queue)
      if (const auto* later = now ? report::find_job(*now, id) : nullptr) job = *later;
    demand_pending(queue);
  } catch (...) {
    base::capture([&] { let_go(); });
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
      const auto left = release_all();
      std::fputs(left.empty() ? "error: stopped; the run's jobs in the queue are let go (run the same command again)\n"
                              : ("error: stopped; still held:" + left + " (scontrol release them)\n").c_str(),
                 stderr);
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

std::string HeldJobs::release_all() const {
  const std::lock_guard guard(mutex_);
  std::string left;
  for (const auto& id : ids_) {
    const double patience = base::unix_now() + 30;
    CommandEnd end;
    while ((end = scontrol({"release", id})).code != 0 && end.out.find("Invalid job id") == std::string::npos &&
           base::unix_now() < patience)
      std::this_thread::sleep_for(std::chrono::seconds(2));
    if (end.code != 0 && end.out.find("Invalid job id") == std::string::npos) left += " " + id;
  }
  return left;
}

void HeldJobs::cancel_unless(report::Phase phase) {
  if (ids_.empty() || std::any_of(phases_.begin(), phases_.end(), [&](report::Phase p) { return p <= phase; })) return;
  for (const auto& id : ids_) capture_output({"timeout", "-k", "1", "30", "scancel", id}, true);
  base::log_info(fmt::format("cancelled, for none of them does {}: jobs {}", report::phase_name(phase), fmt::join(ids_, ", ")));
  const std::lock_guard guard(mutex_);
  ids_.clear();
  again_.clear();
}

void HeldJobs::let_go() {
  if (!held_) return;
  held_ = false;
  const auto left = release_all();
  unwatch();
  if (!left.empty()) throw base::RefusedError("still held:" + left, fmt::format("`scontrol release{}`, or start again", left));
  // One that starts in the first seconds after it was put back can be ended together with what is left of its former self.
  constexpr double settle_s = 4;
  if (const double wait = since_ + settle_s - base::unix_now(); !again_.empty() && wait > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  for (const auto& id : again_) scontrol({"update", "JobId=" + id, "StartTime=now"});
}

}  // namespace aerie::apps
