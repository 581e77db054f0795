// SPDX-License-Identifier: Apache-2.0
// The three channels. A signal stays with its process, so each case with one runs in a child that ends with a telling code.
#include <aerie/stop/stop_token.hpp>

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
using aerie::stop::Request;
using aerie::stop::StopToken;

namespace {
void touch(const std::filesystem::path& path) { std::ofstream(path) << ""; }

/// 0 when a token that watches nothing sees a stop for the right reason after `signals`.
[[noreturn]] void stops_after(std::initializer_list<int> signals, const char* reason) {
  StopToken::install_handlers();
  StopToken token({}, false, std::nullopt);
  if (token.poll() != Request::none) ::_exit(10);
  for (const int s : signals) ::raise(s);
  if (token.poll() != Request::stop || token.poll() != Request::stop) ::_exit(11);
  if (token.reason() != reason) ::_exit(12);
  token.save_done();
  if (token.poll() != Request::stop) ::_exit(13);  // once stop, always stop
  try {
    token.throw_if_stopped();
  } catch (const base::StopRequested& e) {
    ::_exit(e.code() == base::ExitCode::stopped && std::string(e.what()).find(reason) != std::string::npos ? 0 : 14);
  }
  ::_exit(15);
}
}  // namespace

TEST(StopSignals, EachOfThemAndSeveral) {
  EXPECT_EXIT(stops_after({SIGUSR2}, "signal USR2"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stops_after({SIGUSR1}, "signal USR1"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stops_after({SIGTERM}, "signal TERM"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stops_after({SIGCONT, SIGUSR2, SIGUSR2}, "signal USR2"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(stops_after({SIGCONT}, ""), testing::ExitedWithCode(11), "");  // CONT asks for nothing
}

TEST(StopSignals, ArrivedBeforeTheTokenIsNotLost) {
  EXPECT_EXIT(
      {
        StopToken::install_handlers();
        ::raise(SIGUSR2);
        StopToken token({}, false, std::nullopt);
        ::_exit(token.poll() == Request::stop ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignals, DoNotBreakABlockingCall) {
  EXPECT_EXIT(
      {
        StopToken::install_handlers();
        int pipe[2];
        if (::pipe(pipe) != 0) ::_exit(2);
        const pid_t parent = ::getpid();
        if (::fork() == 0) {
          ::usleep(100000);  // the parent is in read by now; were it not, the test would still be right
          ::kill(parent, SIGUSR2);
          ::usleep(100000);
          ::_exit(::write(pipe[1], "x", 1) == 1 ? 0 : 1);
        }
        char c = 0;
        ::_exit(::read(pipe[0], &c, 1) == 1 ? 0 : 1);  // SA_RESTART: no EINTR
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopReady, CreatesTheFileThatIsNamedAndNeverFails) {
  aerie::test::TempDir folder;
  ::unsetenv("AERIE_READY_FILE");
  aerie::stop::announce_ready();
  ::setenv("AERIE_READY_FILE", (folder / "ready").c_str(), 1);
  aerie::stop::announce_ready();
  aerie::stop::announce_ready();
  EXPECT_TRUE(std::filesystem::exists(folder / "ready"));
  ::setenv("AERIE_READY_FILE", (folder / "no" / "ready").c_str(), 1);
  aerie::stop::announce_ready();
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
  ::unsetenv("AERIE_READY_FILE");
}

TEST(StopFiles, StopFileIsSeenAndStays) {
  aerie::test::TempDir run;
  StopToken token(run.path(), true, std::nullopt, 0.0), other(run.path(), false, std::nullopt, 0.0);
  EXPECT_EQ(token.poll(), Request::none);
  EXPECT_NO_THROW(token.throw_if_stopped());
  touch(run / "stop");
  EXPECT_EQ(token.poll(), Request::stop);
  EXPECT_EQ(token.reason(), "file RUN/stop");
  EXPECT_THROW(token.throw_if_stopped(), base::StopRequested);
  EXPECT_TRUE(std::filesystem::exists(run / "stop"));
  std::filesystem::remove(run / "stop");
  EXPECT_EQ(token.poll(), Request::stop);
  touch(run / "stop");
  EXPECT_EQ(other.poll(), Request::none);  // only the watching rank looks
}

TEST(StopFiles, SaveNowUntilTheSaveIsDone) {
  aerie::test::TempDir run;
  StopToken token(run.path(), true, std::nullopt, 0.0);
  touch(run / "save-now");
  EXPECT_EQ(token.poll(), Request::save_now);
  EXPECT_NO_THROW(token.throw_if_stopped());
  EXPECT_EQ(token.poll(), Request::save_now);
  EXPECT_TRUE(std::filesystem::exists(run / "save-now"));
  token.save_done();
  EXPECT_FALSE(std::filesystem::exists(run / "save-now"));
  EXPECT_EQ(token.poll(), Request::none);
  touch(run / "save-now");
  touch(run / "stop");
  EXPECT_EQ(token.poll(), Request::stop);  // the larger request wins
}

TEST(StopFiles, AreLookedAtOnceAnInterval) {
  aerie::test::TempDir run;
  StopToken token(run.path(), true, std::nullopt, 0.3);
  EXPECT_EQ(token.poll(), Request::none);  // this was a look
  touch(run / "stop");
  const double start = base::unix_now();
  while (token.poll() == Request::none && base::unix_now() - start < 5) ::usleep(1000);
  const double waited = base::unix_now() - start;
  EXPECT_GE(waited, 0.25);
  EXPECT_LT(waited, 5);
}

TEST(StopClock, StopsWhenLessThanTheLeadTimeIsLeft) {
  StopToken token({}, true, base::unix_now() + 60, 0.0);
  EXPECT_EQ(token.poll(), Request::none);  // 60 s left, 30 s needed by default
  token.set_lead_time(50);
  EXPECT_EQ(token.poll(), Request::none);
  token.set_lead_time(70);
  EXPECT_EQ(token.poll(), Request::stop);
  EXPECT_EQ(token.reason(), "time budget");
  StopToken other({}, false, base::unix_now() + 1, 0.0);
  EXPECT_EQ(other.poll(), Request::none);  // rank 0's clock decides
}

TEST(StopClock, EndTimeInThePastIsReportedAndNotObeyed) {
  testing::internal::CaptureStderr();
  StopToken token({}, true, base::unix_now() - 100, 0.0);
  EXPECT_EQ(token.poll(), Request::none);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("past"), std::string::npos);
}

TEST(StopClock, EndTimeFromTheEnvironment) {
  ::unsetenv("AERIE_END_TIME");
  EXPECT_FALSE(StopToken::end_time_from_environment());
  for (const char* none : {"", "N/A", "12 o'clock", "nan", "inf"}) {
    ::setenv("AERIE_END_TIME", none, 1);
    EXPECT_FALSE(StopToken::end_time_from_environment()) << none;
  }
  ::setenv("AERIE_END_TIME", "1790000000", 1);
  EXPECT_EQ(StopToken::end_time_from_environment(), 1790000000.0);
  ::unsetenv("AERIE_END_TIME");
}
