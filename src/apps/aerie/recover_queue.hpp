// SPDX-License-Identifier: Apache-2.0
// Jobs of a run that wait in Slurm's queue while it is recovered. After a node failure Slurm puts a job back by itself; if it
// started in the middle of a recovery, one of the two would be refused the run. So they are held, and let go when the work is
// done.
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
  /// Holds every job of the run that is pending. Throws RefusedError when one is running, naming it, or when one cannot be held.
  explicit HeldJobs(const report::RunState& state);
  HeldJobs(const HeldJobs&) = delete;
  HeldJobs& operator=(const HeldJobs&) = delete;
  ~HeldJobs();  // lets go what is still held
  // While jobs are held, INT, TERM and HUP let them go and end the process with 75.
  /// Lets them go. Those that Slurm had put back start as soon as there are nodes: it makes them wait for two minutes otherwise.
  void let_go();
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  void watch();
  void unwatch();
  void hold(const std::string& id);
  void release_all() const;
  mutable std::mutex mutex_;              // of ids_: the watcher reads them
  std::vector<std::string> ids_, again_;  // again_: of these, those that have run before
  double since_ = 0;
  bool held_ = false;
  std::thread watcher_;
  std::atomic<bool> done_{false};
  sigset_t before_{};
};

}  // namespace aerie::apps
