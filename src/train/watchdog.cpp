// SPDX-License-Identifier: Apache-2.0
#include "watchdog.hpp"

#include <cmath>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/exit_codes.hpp>
#include <aerie/base/log.hpp>

namespace aerie::train {

double Watchdog::limit_from_environment() {
  constexpr double usual = 1800;
  const char* text = std::getenv("AERIE_STEP_LIMIT_SECONDS");
  if (!text || !*text) return usual;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end == '\0' && std::isfinite(value) && value >= 0) return value;
  base::log_warning(fmt::format("AERIE_STEP_LIMIT_SECONDS=\"{}\" is no number of seconds; {} is taken", text, usual));
  return usual;
}

Watchdog::Watchdog(double limit_s) : limit_s_(limit_s), since_(std::chrono::steady_clock::now()) {
  if (limit_s_ <= 0) return;
  sigset_t all, before;  // signals are the main thread's: the new thread inherits a full mask
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::pet(const char* doing) {
  const std::lock_guard lock(mutex_);
  since_ = std::chrono::steady_clock::now();
  doing_ = doing;
}

void Watchdog::watch() {
  const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(limit_s_));
  std::unique_lock lock(mutex_);
  while (!end_) {
    const auto until = since_ + limit;
    if (std::chrono::steady_clock::now() >= until) {
      base::log_error(
          fmt::format("{} takes longer than {:.0f} s: a peer may be gone (look at the other ranks' logs; "
                      "AERIE_STEP_LIMIT_SECONDS sets the limit)",
                      doing_, limit_s_));
      ::_exit(static_cast<int>(base::ExitCode::peer));
    }
    ended_.wait_until(lock, until);
  }
}

}  // namespace aerie::train
