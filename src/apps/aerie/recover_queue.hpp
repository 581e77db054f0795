// SPDX-License-Identifier: Apache-2.0
// Jobs of a run that wait in Slurm's queue while it is recovered. After a node failure Slurm puts a job back by itself; if it
// started in the middle of a recovery, one of the two would be refused the run. So they are held, and let go when the work is
// done; the ledger says which, for the next recovery in case this one is killed. While jobs are held, INT, TERM and HUP let them
// go and end the process with 75.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <csignal>

#include <aerie/report/ledger.hpp>

#include "slurm_queue.hpp"

namespace aerie::apps {

class HeldJobs {
 public:
  /// Holds every job of the newest submission that is pending, except the one that this process runs in and those that somebody
  /// holds already. Throws RefusedError when one is running, naming it, when one cannot be held, or when Slurm does not answer;
  /// IoError when the ledger cannot be written.
  explicit HeldJobs(const report::Ledger& ledger);
  HeldJobs(const HeldJobs&) = delete;
  HeldJobs& operator=(const HeldJobs&) = delete;
  ~HeldJobs();  // lets go what is still held
  /// To be called when no other recovery can be at work: what one held that was killed is let go by this one.
  void take_over();
  /// Lets them go; throws RefusedError naming those that Slurm would not release within half a minute. Those that Slurm had put
  /// back start as soon as there are nodes: it makes them wait for two minutes otherwise.
  void let_go();
  /// Cancels them when none of them does `phase` or one before it: they would only fail, and what is missing has to be submitted.
  /// Throws RefusedError, and cancels none, when a person holds one of them: submitted anew it would not be held.
  void cancel_unless(report::Phase phase);
  /// Jobs that go on, and jobs that a person holds: "12", of an array that only some tasks are held of "12_3".
  const std::vector<std::string>& ids() const { return ids_; }
  const std::vector<std::string>& kept() const { return kept_; }
  /// All of the run's jobs that were found in the queue.
  std::vector<std::string> in_queue() const;

 private:
  void sort_out(const Queue& queue);
  void hold();
  void watch();
  void unwatch();
  std::vector<std::string> release_all();  // those that are still held
  void record(std::string_view what, const std::vector<std::string>& jobs);
  report::Ledger ledger_;
  report::RunState state_;
  std::mutex mutex_;                   // of ids_: the watcher reads them
  std::vector<report::Phase> phases_;  // that they do
  std::vector<std::string> ids_, kept_;
  std::vector<std::string> others_;  // another recovery holds them, and may still be at work
  std::vector<std::string> again_;   // have run before
  double since_ = 0;
  bool held_ = false;
  std::thread watcher_;
  std::atomic<bool> done_{false};
  sigset_t before_{};
};

}  // namespace aerie::apps
