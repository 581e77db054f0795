// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/node/process.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace aerie::node {
namespace {
/// False: it has gone.
bool send(const base::File& handle, std::int64_t pid, int signal) {
  if (::syscall(SYS_pidfd_send_signal, handle.fd(), signal, nullptr, 0) == 0) return true;
  if (errno == ESRCH) return false;
  base::throw_errno(errno, fmt::format("cannot end process {}", pid));
}
/// A handle can be read from when its process has ended.
bool ends_within(const base::File& handle, double seconds) {
  using Clock = std::chrono::steady_clock;
  pollfd p{handle.fd(), POLLIN, 0};
  const double ms = seconds > 0 ? std::min(seconds, 86400.0) * 1000 : 0;  // not a number: 0, and never for ever
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(ms));
  for (;;) {  // a signal to this process must not cut the grace short
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    const int n = ::poll(&p, 1, static_cast<int>(std::max<std::int64_t>(0, left)));
    if (n >= 0 || errno != EINTR) return n > 0;
  }
}
}  // namespace

Ending end_process(std::int64_t pid, std::int64_t start_ticks, double grace_s) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (fd < 0) {
    if (errno == ESRCH || errno == EINVAL) return Ending::gone;
    base::throw_errno(errno, fmt::format("cannot open process {}", pid));
  }
  const base::File handle(fd);
  // The handle is of one process for ever. Is it the one that was meant?
  const auto now = look_at(pid);
  if (!now || now->start_ticks != start_ticks || !now->exists()) return Ending::gone;
  if (!send(handle, pid, SIGTERM)) return Ending::gone;
  send(handle, pid, SIGCONT);  // one that is stopped would sit on its TERM
  if (ends_within(handle, grace_s)) return Ending::ended;
  if (!send(handle, pid, SIGKILL) || ends_within(handle, 10)) return Ending::killed;
  return Ending::survived;
}

}  // namespace aerie::node
