// SPDX-License-Identifier: Apache-2.0
// The signals are blocked and waited for, so there is no handler and no race between a look at a flag and the wait.
#include "child.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace aerie::apps {
namespace {
/// In the child. Never returns; an exec error goes through the pipe.
[[noreturn]] void become(std::vector<char*> argv, const ChildOptions& options, const sigset_t& mask, int pipe_end, pid_t parent) {
  ::setpgid(0, 0);  // a terminal's Ctrl-C reaches the parent alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, options.soft_stop ? SIGUSR2 : SIGTERM);
  if (::getppid() != parent) ::_exit(143);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (const int null = ::open("/dev/null", O_RDONLY); null >= 0)
    ::dup2(null, STDIN_FILENO);  // a background group must not read a terminal
  if (!options.output.empty()) {
    const int out = ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (out >= 0) ::dup2(out, STDOUT_FILENO), ::dup2(out, STDERR_FILENO);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  [[maybe_unused]] const auto n = ::write(pipe_end, &error, sizeof error);
  ::_exit(127);
}
/// A limit in two steps: TERM, and then KILL.
class Patience {
 public:
  explicit Patience(double seconds)
      : until_(Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds))) {}
  bool over() const { return Clock::now() >= until_; }
  /// The signal that is due, once over.
  int next() {
    const int signal = termed_ ? SIGKILL : SIGTERM;
    termed_ = true;
    until_ = Clock::now() + std::chrono::seconds(5);
    return signal;
  }
  timespec left() const {
    const auto ns =
        std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(until_ - Clock::now()).count());
    return {ns / 1'000'000'000, ns % 1'000'000'000};
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point until_;
  bool termed_ = false;
};

/// Negative when none came before the patience is over.
int next_signal(const sigset_t& waited, const std::optional<Patience>& patience) {
  if (!patience) return ::sigwaitinfo(&waited, nullptr);
  const auto left = patience->left();
  return ::sigtimedwait(&waited, nullptr, &left);
}
}  // namespace

ChildResult run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  auto copy = words;
  std::vector<char*> argv;
  for (auto& w : copy) argv.push_back(w.data());
  argv.push_back(nullptr);

  sigset_t waited, before;
  sigemptyset(&waited);
  for (const int s : {SIGTERM, SIGINT, SIGUSR2, SIGCHLD}) sigaddset(&waited, s);
  ::sigprocmask(SIG_BLOCK, &waited, &before);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno(errno, "pipe");
  base::File read_end(ends[0], "pipe"), write_end(ends[1], "pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) base::throw_errno(errno, "start " + words[0]);
  if (pid == 0) become(argv, options, before, write_end.fd(), parent);
  write_end.close();
  int exec_error = 0;
  const bool failed = ::read(read_end.fd(), &exec_error, sizeof exec_error) == static_cast<ssize_t>(sizeof exec_error);

  std::optional<Patience> patience;
  if (options.limit_s > 0) patience.emplace(options.limit_s);
  ChildResult result;
  for (int stops = 0;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    const int signal = next_signal(waited, patience);
    if (signal < 0 && patience && patience->over()) ::kill(pid, patience->next());
    if (signal < 0 || signal == SIGCHLD) continue;
    result.asked = true;
    ::kill(pid, options.soft_stop && stops++ == 0 ? SIGUSR2 : signal);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (failed) throw base::MissingInputError(words[0] + ": cannot be started: " + std::strerror(exec_error), "is it installed?");
  return result;
}

}  // namespace aerie::apps
