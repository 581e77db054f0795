// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include <aerie/train/schedule.hpp>

namespace aerie::train {
namespace {

TEST(Schedule, WarmsUpLinearlyThenFollowsTheCosine) {
  const auto s = make_schedule(1.0, 0.1, 0.1, 100);
  EXPECT_EQ(s.warmup_steps, 10);
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(4), 0.5);
  EXPECT_DOUBLE_EQ(s.at(9), 1.0);
  EXPECT_DOUBLE_EQ(s.at(10), 1.0);
  EXPECT_NEAR(s.at(55), 0.55, 1e-12);  // half way
  EXPECT_NEAR(s.at(100), 0.1, 1e-12);
  EXPECT_NEAR(s.at(1000), 0.1, 1e-12);
}
TEST(Schedule, ShortRunsHaveOneStepOfWarmUp) {
  const auto s = make_schedule(2.0, 0, 0.015, 1);
  EXPECT_EQ(s.warmup_steps, 1);
  EXPECT_DOUBLE_EQ(s.at(0), 2.0);
}
TEST(LossCoefficients, DecayByPointEightOverTheGlobalCount) {
  const std::vector<std::int64_t> n{10, 5, 0, 2};
  const auto c = loss_coefficients({}, n);
  EXPECT_DOUBLE_EQ(c[0], 0.1);
  EXPECT_DOUBLE_EQ(c[1], 0.16);
  EXPECT_EQ(c[2], 0.0);  // a step without slots drops out
  EXPECT_NEAR(c[3], 0.512 / 2, 1e-15);
  const std::vector<double> w{1, 0, 3, 4};
  EXPECT_DOUBLE_EQ(loss_coefficients(w, n)[3], 2.0);
  EXPECT_DOUBLE_EQ(loss_coefficients(w, n)[1], 0.0);
}

}  // namespace
}  // namespace aerie::train
