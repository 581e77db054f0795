// SPDX-License-Identifier: Apache-2.0
// The time limit of a child. (That signals are passed on is in pipeline_test.cpp.)
#include <chrono>

#include <gtest/gtest.h>

#include "child.hpp"

namespace apps = aerie::apps;

namespace {
struct Timed {
  apps::ChildResult result;
  double seconds = 0;
};
Timed bash(const std::string& script, double limit_s) {
  const auto began = std::chrono::steady_clock::now();
  auto result = apps::run_child({"bash", "-c", script}, {.limit_s = limit_s});
  return {result, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()};
}
}  // namespace

TEST(ChildLimit, NoneIsNeeded) {
  EXPECT_EQ(bash("exit 7", 0).result.code, 7);
  const auto quick = bash("sleep 0.1; exit 7", 30);
  EXPECT_EQ(quick.result.code, 7);
  EXPECT_LT(quick.seconds, 10) << "its end is noticed at once";
}
TEST(ChildLimit, TermWhenItIsOver) {
  const auto slow = bash("exec sleep 60", 0.3);
  EXPECT_EQ(slow.result.code, 143);
  EXPECT_FALSE(slow.result.asked) << "nobody asked this process to stop";
  EXPECT_GE(slow.seconds, 0.3);
  EXPECT_LT(slow.seconds, 5);
}
TEST(ChildLimit, KillWhenThatIsIgnored) {
  const auto deaf = bash("trap '' TERM; while :; do sleep 0.05; done", 0.3);
  EXPECT_EQ(deaf.result.code, 137);
  EXPECT_LT(deaf.seconds, 12);
}
