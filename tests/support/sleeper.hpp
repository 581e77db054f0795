// SPDX-License-Identifier: Apache-2.0
// A child process that lives until it is ended, for tests that look at processes.
#pragma once
#include <csignal>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

namespace aerie::test {

class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Sleeper() { end(), reap(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }
  /// Dead when this returns, and a zombie until reap().
  void end() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void reap() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

}  // namespace aerie::test
