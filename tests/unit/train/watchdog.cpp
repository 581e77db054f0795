// SPDX-License-Identifier: Apache-2.0
// A step that never ends ends the process with 76; one that goes on does not.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "watchdog.hpp"

namespace aerie::train {
namespace {

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(WatchdogDeathTest, EndsAProcessWhoseStepHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Watchdog dog(0.2);
        dog.pet("step 7");
        rest(20000);
      },
      testing::ExitedWithCode(76), "step 7 takes longer");
}

TEST(WatchdogDeathTest, LetsStepsThatEndGoOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        {
          const Watchdog off(0);
          Watchdog dog(2.0);
          for (int i = 0; i < 30; ++i) {
            dog.pet("a step");
            rest(100);
          }
        }
        ::_exit(3);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace aerie::train
