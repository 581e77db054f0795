// SPDX-License-Identifier: Apache-2.0
#include "recover_queue.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/holds.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace aerie::apps {
namespace {
CommandEnd slurm(std::vector<std::string> words) {
  words.insert(words.begin(), {"timeout", "-k", "1", "30"});
  return capture_output(words, true);
}
std::string list(const std::vector<std::string>& ids, const char* between = " ") {
  return fmt::format("{}", fmt::join(ids, between));
}

void demand_pending(const Queue& queue) {
  for (const auto& [id, job] : queue)
    if (job.state != "PENDING")
      throw base::RefusedError(fmt::format("job {} of this run is {}", id, job.state),
                               fmt::format("wait for its end, or `scancel {}`, then start again", id));
}

/// Is `row` the job `id`, or a task of the array `id`?
bool belongs(const std::string& row, const std::string& id) { return row == id || row.starts_with(id + "_"); }

/// The run's own, without the job that this process runs in.
Queue rows_of(const Queue& all, const std::string& id) {
  const auto own = base::this_process().job;
  Queue out;
  for (const auto& [row, job] : all)
    if (belongs(row, id) && row != own) out[row] = job;
  return out;
}
/// Of `ids`, those of which something in `queue` is, or is not, held.
std::vector<std::string> with_rows(const std::vector<std::string>& ids, const Queue& queue, bool held) {
  std::vector<std::string> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out), [&](const std::string& id) {
    return std::any_of(queue.begin(), queue.end(),
                       [&](const auto& r) { return belongs(r.first, id) && r.second.held.empty() != held; });
  });
  return out;
}
}  // namespace

HeldJobs::HeldJobs(const report::Ledger& ledger)
    : ledger_(ledger), state_(report::replay(ledger_.read())), since_(base::unix_now()) {
  if (state_.jobs.empty()) return;
  const auto all = jobs_in_queue(state_);
  if (!all) {
    if (capture_output({"sh", "-c", "command -v squeue"}).code != 0) return;  // no Slurm here
    throw base::RefusedError("Slurm does not say whether jobs of this run are in its queue",
                             "try again when `squeue` answers: a job that started meanwhile would be refused the run");
  }
  sort_out(*all);
  if (ids_.empty()) return;
  held_ = true;
  watch();
  try {
    hold();
  } catch (...) {
    base::capture([&] { let_go(); });
    throw;
  }
}

/// What is held as a whole has one name, so that an array of many tasks is one word for Slurm and for the ledger.
void HeldJobs::sort_out(const Queue& all) {
  const auto holds = report::holds_of_recoveries(ledger_.read());
  for (const auto& j : state_.jobs) {
    const auto rows = rows_of(all, j.job);
    demand_pending(rows);
    if (rows.empty()) continue;
    base::capture([&] { phases_.push_back(report::phase_from_name(j.phase)); });  // one of a newer version does none that we know
    const auto place = [&](const report::QueuedJob& job, const std::string& id) -> std::vector<std::string>& {
      return job.held.empty() ? ids_ : report::find_holder(holds, id) ? others_ : kept_;
    };
    const auto& first = place(rows.begin()->second, rows.begin()->first);
    const bool as_one = !belongs(base::this_process().job, j.job) && std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
      return &place(row.second, row.first) == &first;
    });
    for (const auto& [row, job] : rows) {
      const auto& id = as_one ? j.job : row;
      auto& ids = place(job, row);
      if (ids.empty() || ids.back() != id) ids.push_back(id);
      if (job.restarts > 0 && (again_.empty() || again_.back() != id)) again_.push_back(id);
    }
  }
}

/// The queue is believed, not scontrol's exit code: of an array that has ended tasks it is 1 although the others are held.
void HeldJobs::hold() {
  CommandEnd end;
  {
    const std::lock_guard guard(mutex_);  // a signal lets go what this has held, not what it is about to hold
    record(report::jobs_held, ids_);
    end = slurm({"scontrol", "hold", list(ids_, ",")});
  }
  const auto now = jobs_in_queue(state_);
  if (!now && end.code == 0) return;
  const auto queue = now.value_or(Queue());
  // One may have started between the question and its hold.
  for (const auto& id : ids_) demand_pending(rows_of(queue, id));
  const auto free = now ? with_rows(ids_, queue, false) : ids_;
  if (!free.empty())
    throw base::RefusedError(fmt::format("job {} of this run cannot be held: {}", list(free), end.out), "scancel " + list(free));
}

HeldJobs::~HeldJobs() {
  if (const auto error = base::capture([&] { let_go(); })) base::log_warning(error->what());
}

void HeldJobs::take_over() {
  if (others_.empty()) return;
  record(report::jobs_held, others_);
  const std::lock_guard guard(mutex_);
  ids_.insert(ids_.end(), others_.begin(), others_.end());
  others_.clear();
  if (held_) return;
  held_ = true;
  watch();
}

void HeldJobs::record(std::string_view what, const std::vector<std::string>& jobs) {
  const auto self = base::this_process();
  base::Json details{{"jobs", jobs}};
  if (what == report::jobs_held)
    details["process"] = {{"host", self.host},
                          {"boot_id", self.boot_id},
                          {"pid_namespace", self.pid_namespace},
                          {"pid", self.pid},
                          {"start_ticks", self.start_ticks}};
  ledger_.evidence(std::string(what), details);
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
                              : ("error: stopped; still held: " + list(left) + " (scontrol release them)\n").c_str(),
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

std::vector<std::string> HeldJobs::in_queue() const {
  auto out = ids_;
  out.insert(out.end(), others_.begin(), others_.end());
  out.insert(out.end(), kept_.begin(), kept_.end());
  return out;
}

std::vector<std::string> HeldJobs::release_all() {
  const std::lock_guard guard(mutex_);
  if (ids_.empty()) return {};
  auto left = ids_;
  for (const double patience = base::unix_now() + 30;; std::this_thread::sleep_for(std::chrono::seconds(2))) {
    const auto end = slurm({"scontrol", "release", list(left, ",")});
    const auto now = jobs_in_queue(state_);
    if (now)
      left = with_rows(left, *now, true);
    else if (end.code == 0)
      left.clear();
    if (left.empty() || base::unix_now() > patience) break;
  }
  std::vector<std::string> gone;
  std::copy_if(ids_.begin(), ids_.end(), std::back_inserter(gone),
               [&](const std::string& id) { return std::find(left.begin(), left.end(), id) == left.end(); });
  if (const auto error = base::capture([&] { record(report::jobs_let_go, gone); })) base::log_warning(error->what());
  return left;
}

void HeldJobs::cancel_unless(report::Phase phase) {
  if (std::any_of(phases_.begin(), phases_.end(), [&](report::Phase p) { return p <= phase; })) return;
  const std::string none = fmt::format("no job in the queue does {}", report::phase_name(phase));
  if (!kept_.empty())
    throw base::RefusedError(fmt::format("{}, and somebody holds job {}", none, list(kept_)),
                             fmt::format("`scancel {}` when it may be submitted anew, and start again", list(kept_)));
  if (ids_.empty()) return;
  std::vector<std::string> words{"scancel"};
  words.insert(words.end(), ids_.begin(), ids_.end());
  const auto end = slurm(words);
  const auto now = jobs_in_queue(state_);
  std::vector<std::string> left;
  for (const auto& id : ids_)
    if (now ? !rows_of(*now, id).empty() : end.code != 0) left.push_back(id);
  if (!left.empty())
    throw base::RefusedError(fmt::format("{}, and job {} cannot be cancelled: {}", none, list(left), end.out),
                             "scancel " + list(left));
  base::log_info(fmt::format("cancelled, for none of them does {}: jobs {}", report::phase_name(phase), fmt::join(ids_, ", ")));
  record(report::jobs_let_go, ids_);
  const std::lock_guard guard(mutex_);
  ids_.clear();
  again_.clear();
}

void HeldJobs::let_go() {
  if (!held_) return;
  held_ = false;
  const auto left = release_all();
  unwatch();
  if (!left.empty())
    throw base::RefusedError("still held: " + list(left), fmt::format("`scontrol release {}`, or start again", list(left)));
  // One that starts in the first seconds after it was put back can be ended together with what is left of its former self.
  constexpr double settle_s = 4;
  const auto starts = [&](const std::string& id) { return std::find(ids_.begin(), ids_.end(), id) != ids_.end(); };
  again_.erase(std::remove_if(again_.begin(), again_.end(), [&](const auto& id) { return !starts(id); }), again_.end());
  if (const double wait = since_ + settle_s - base::unix_now(); !again_.empty() && wait > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  for (const auto& id : again_) slurm({"scontrol", "update", "JobId=" + id, "StartTime=now"});
}

}  // namespace aerie::apps
