// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/node/process.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace aerie::node {
namespace {
/// A process that is being ended. Its handle is of one process for ever, whatever becomes of the pid.
struct Held {
  std::int64_t pid = 0;
  base::File handle;
  End* end = nullptr;
};

void refuse(End& end, std::int64_t pid, int error) {
  end = {Ending::refused, fmt::format("cannot end process {}: {}", pid, std::strerror(error))};
}

/// Nothing when there is nothing to end; `end` says why.
std::optional<Held> hold(const Process& p, End& end) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(p.pid), 0));
  if (fd < 0) {
    if (errno != ESRCH && errno != EINVAL) refuse(end, p.pid, errno);
    return std::nullopt;
  }
  Held held{p.pid, base::File(fd), &end};
  const auto now = look_at(p.pid);  // after the handle is open: is it the one that was meant?
  if (!now || now->start_ticks != p.start_ticks || !now->exists()) return std::nullopt;
  return held;
}

/// Takes out those that have gone (`as`) or that refuse the signal.
void signal_all(std::vector<Held>& all, int signal, Ending as) {
  std::erase_if(all, [&](const Held& h) {
    if (::syscall(SYS_pidfd_send_signal, h.handle.fd(), signal, nullptr, 0) == 0) return false;
    if (errno == ESRCH)
      h.end->ending = as;
    else
      refuse(*h.end, h.pid, errno);
    return true;
  });
}

/// Takes out those that end within `seconds`, and says `as` of them. Returns when all have.
void wait_for_all(std::vector<Held>& all, double seconds, Ending as) {
  using Clock = std::chrono::steady_clock;
  const double ms = seconds > 0 ? std::min(seconds, 86400.0) * 1000 : 0;  // not a number: 0, and never for ever
  const auto until = Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(ms));
  while (!all.empty()) {
    std::vector<pollfd> polled;  // a handle can be read from when its process has ended
    for (const auto& h : all) polled.push_back({h.handle.fd(), POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const int n = ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
    if (n < 0 && errno == EINTR) continue;  // a signal to this process must not cut the grace short
    if (n <= 0) return;
    std::erase_if(all, [&](const Held& h) {
      const bool ended =
          std::any_of(polled.begin(), polled.end(), [&](const pollfd& p) { return p.fd == h.handle.fd() && p.revents != 0; });
      if (ended) h.end->ending = as;
      return ended;
    });
  }
}
}  // namespace

std::vector<End> end_processes(const std::vector<Process>& processes, double grace_s) {
  std::vector<End> out(processes.size());
  std::vector<Held> left;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (auto held = hold(processes[i], out[i])) left.push_back(std::move(*held));
  signal_all(left, SIGTERM, Ending::gone);
  signal_all(left, SIGCONT, Ending::ended);  // one that is stopped would sit on its TERM
  wait_for_all(left, grace_s, Ending::ended);
  signal_all(left, SIGKILL, Ending::ended);
  wait_for_all(left, 10, Ending::killed);
  for (const auto& h : left) h.end->ending = Ending::survived;
  return out;
}

}  // namespace aerie::node
