// SPDX-License-Identifier: Apache-2.0
// Three channels, one decision. The only global state is the flag that the handler sets; it outlives every token, so that a
// signal before the first token, or after the last, is neither lost nor deadly.
#include <aerie/stop/stop_token.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace aerie::stop {
namespace {
std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch lock-free atomics only");

extern "C" void aerie_stop_on_signal(int number) { received_signal.store(number, std::memory_order_relaxed); }

const char* signal_name(int number) {
  switch (number) {
    case SIGUSR2:
      return "USR2";
    case SIGUSR1:
      return "USR1";
    case SIGTERM:
      return "TERM";
    default:
      return "?";
  }
}
double steady_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;  // a file system that does not answer asks for nothing
  return std::filesystem::exists(path, ignored);
}
}  // namespace

void announce_ready() noexcept {
  const char* path = std::getenv("AERIE_READY_FILE");
  if (!path || !*path) return;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0) ::close(fd);
}

void StopToken::install_handlers() {
  struct sigaction action {};
  action.sa_handler = aerie_stop_on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGUSR2, SIGUSR1, SIGTERM}) {
    base::expect(::sigaction(number, &action, nullptr) == 0, "sigaction accepts the handler");
    sigaddset(&handled, number);
  }
  // Job scripts start programs with these blocked: what came while the libraries were loaded waits, and is delivered here.
  base::expect(::sigprocmask(SIG_UNBLOCK, &handled, nullptr) == 0, "sigprocmask accepts the set");
}

std::optional<double> StopToken::end_time_from_environment() {
  const char* text = std::getenv("AERIE_END_TIME");
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(value)) {
    base::log_warning(fmt::format("AERIE_END_TIME=\"{}\" is no time in seconds since 1970; the time limit is not watched", text));
    return std::nullopt;
  }
  return value;
}

StopToken::StopToken(std::filesystem::path run, bool watches_files, std::optional<double> end_time_unix, double look_interval_s)
    : run_(std::move(run)), watches_files_(watches_files), end_time_(end_time_unix), look_interval_s_(look_interval_s) {
  if (!watches_files_) return;
  if (!end_time_) {
    base::log_info("no end time is known: only signals and stop files end this program early");
  } else if (const double left = *end_time_ - base::unix_now(); left <= 0) {
    base::log_warning(fmt::format("the end time lies {} in the past and is not obeyed; check AERIE_END_TIME and the clock",
                                  base::format_duration(-left)));
    end_time_.reset();
  }
}

Request StopToken::poll() {
  if (seen_ == Request::stop) return seen_;
  if (const int number = received_signal.load(std::memory_order_relaxed); number != 0) {
    reason_ = fmt::format("signal {}", signal_name(number));
    return seen_ = Request::stop;
  }
  if (watches_files_) {
    const double now = steady_now();
    if (now - last_look_ >= look_interval_s_) {
      last_look_ = now;
      look_at_files_and_clock();
    }
  }
  return seen_;
}

void StopToken::look_at_files_and_clock() {
  if (!run_.empty() && is_there(run_ / "stop")) {
    reason_ = "file RUN/stop";
    seen_ = Request::stop;
  } else if (end_time_ && *end_time_ - base::unix_now() < lead_s_) {
    reason_ = "time budget";
    seen_ = Request::stop;
  } else if (!run_.empty() && is_there(run_ / "save-now")) {
    reason_ = "file RUN/save-now";
    seen_ = Request::save_now;
  }
}

Request StopToken::agree(const comm::Comm& comm) {
  const auto all = static_cast<Request>(comm.max(static_cast<std::int64_t>(poll())));
  if (all != Request::stop) return all;
  const auto reasons =
      comm.all_gather(seen_ == Request::stop ? reason_ : std::string{});  // every rank knows of the stop: all come here
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    if (seen_ != Request::stop) reason_ = fmt::format("{} (seen by rank {})", reasons[rank], rank);
    break;
  }
  return seen_ = Request::stop;
}

void StopToken::throw_if_stopped() {
  if (poll() == Request::stop)
    throw base::StopRequested("stopped: " + reason_, "run the same command again: it goes on where it was");
}

void StopToken::save_done() {
  if (seen_ == Request::save_now) {
    seen_ = Request::none;
    reason_.clear();
  }
  if (!watches_files_ || run_.empty()) return;
  const auto path = run_ / "save-now";
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    base::log_warning(
        fmt::format("{} could not be removed: {}; it asks for a save again and again", path.string(), std::strerror(errno)));
}

}  // namespace aerie::stop
