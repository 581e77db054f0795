// SPDX-License-Identifier: Apache-2.0
// Ends the process when a step never ends: a peer that is gone can leave the others inside a collective or a device wait for
// ever.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace aerie::train {

class Watchdog {
 public:
  /// From now on pet() must be called at least every `limit_s` seconds, else one line goes to stderr and the process ends with
  /// exit code 76, without unwinding. 0: never.
  explicit Watchdog(double limit_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// `doing` names what begins now.
  void pet(const char* doing);
  /// AERIE_STEP_LIMIT_SECONDS; 1800 unless set, 0 switches it off.
  static double limit_from_environment();

 private:
  void watch();
  const double limit_s_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::chrono::steady_clock::time_point since_;
  std::string doing_ = "start";
  bool end_ = false;
  std::thread thread_;
};

}  // namespace aerie::train
