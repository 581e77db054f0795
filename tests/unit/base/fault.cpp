// SPDX-License-Identifier: Apache-2.0
// Fault points: count, rank and action. Each case runs in a process of its own, since the choice is read once.
#include <aerie/base/fault.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <unistd.h>

#include <aerie/base/error.hpp>

namespace base = aerie::base;

#ifdef AERIE_FAULTS
namespace {
/// The exit code tells at which pass the point acted, and how.
[[noreturn]] void passes(const char* fault, const char* rank) {
  ::setenv("AERIE_FAULT", fault, 1);
  ::setenv("OMPI_COMM_WORLD_RANK", rank, 1);
  for (int i = 1; i <= 3; ++i) {
    if (base::fault_point("other") != 0) ::_exit(99);
    try {
      const int e = base::fault_point("here");
      if (e == ENOSPC) ::_exit(10 + i);
      if (e == EIO) ::_exit(20 + i);
    } catch (const base::IoError&) {
      ::_exit(30 + i);
    }
  }
  ::_exit(0);
}
}  // namespace

TEST(FaultPoint, ActsOnceAtItsCountAndRank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process: other tests of this one have passed points already
  EXPECT_EXIT(passes("here:0:2:enospc", "0"), testing::ExitedWithCode(12), "");
  EXPECT_EXIT(passes("here:0:1:eio", "0"), testing::ExitedWithCode(21), "");
  EXPECT_EXIT(passes("here:*:3:throw", "5"), testing::ExitedWithCode(33), "");
  EXPECT_EXIT(passes("here:1:1:exit", "1"), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(passes("here:0:1:kill", "0"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(passes("here:1:1:kill", "0"), testing::ExitedWithCode(0), "");  // another rank's
  EXPECT_EXIT(passes("here:0:4:kill", "0"), testing::ExitedWithCode(0), "");  // never reached
  EXPECT_EXIT(passes("", "0"), testing::ExitedWithCode(0), "");
}
#else
TEST(FaultPoint, IsNothingWhenNotBuiltIn) {
  ::setenv("AERIE_FAULT", "here:*:1:throw", 1);
  EXPECT_EQ(base::fault_point("here"), 0);
}
#endif
