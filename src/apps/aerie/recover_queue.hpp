// SPDX-License-Identifier: Apache-2.0
// Jobs of a run that wait in Slurm's queue while it is recovered. After a node failure Slurm puts a job back by itself; if it
// started in the middle of a recovery, one of the two would be refused the run. So they are held, and let go when the work is
// done. While jobs are held, INT, TERM and HUP let them go and end the process with 75.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <csignal>

#include <aerie/report/ledger.hpp>

namespace aerie::apps {

class HeldJobs {
 public:
  /// Holds every job of the newest submission that is pending, except the one that this process runs in. Throws RefusedError when
  /// one is running, naming it, when one cannot be held, or when Slurm does not answer.
  explicit HeldJobs(const report::RunState& state);
  HeldJobs(const HeldJobs&) = delete;
  HeldJobs& operator=(const HeldJobs&) = delete;
  ~HeldJobs();  // lets go what is still held
  /// Lets them go; throws RefusedError naming those that Slurm would not release within half a minute. Those that Slurm had put
  /// back start as soon as there are nodes: it makes them wait for two minutes otherwise.
  void let_go();
  /// Cancels them when none of them does `phase` or one before it: they would only fail, and what is missing has to be submitted.
  void cancel_unless(report::Phase phase);
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  void watch();
  void unwatch();
  void hold(const std::string& id);
  std::string release_all() const;        // those that are still held
  mutable std::mutex mutex_;              // of ids_: the watcher reads them
  std::vector<report::Phase> phases_;     // that they do
  std::vector<std::string> ids_, again_;  // again_: of these, those that have run before
  double since_ = 0;
  bool held_ = false;
  std::thread watcher_;
  std::atomic<bool> done_{false};
  sigset_t before_{};
};

}  // namespace aerie::apps
