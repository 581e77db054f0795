// SPDX-License-Identifier: Apache-2.0
#include "recover_queue.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "slurm_queue.hpp"

namespace aerie::apps {
namespace {
CommandEnd scontrol(std::vector<std::string> words) {
  words.insert(words.begin(), {"timeout", "30", "scontrol"});
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
  held_ = true;
  for (const auto& [id, job] : *queue) {
    const auto end = scontrol({"hold", job.id});
    if (end.code != 0)
      throw base::RefusedError(fmt::format("job {} of this run cannot be held: {}", id, end.out), "scancel " + id);
    ids_.push_back(job.id);
    if (job.restarts > 0) again_.push_back(job.id);
  }
}

HeldJobs::~HeldJobs() {
  if (const auto error = base::capture([&] { let_go(); })) base::log_warning(error->what());
}

void HeldJobs::let_go() {
  if (!held_) return;
  held_ = false;
  for (const auto& id : ids_)
    if (const auto end = scontrol({"release", id}); end.code != 0)
      base::log_warning(fmt::format("job {} is still held: {}; `scontrol release {}`", id, end.out, id));
  // One that starts in the first seconds after it was put back can be ended together with what is left of its former self.
  constexpr double settle_s = 4;
  if (const double wait = since_ + settle_s - base::unix_now(); !again_.empty() && wait > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  for (const auto& id : again_) scontrol({"update", "JobId=" + id, "StartTime=now"});
}

}  // namespace aerie::apps
