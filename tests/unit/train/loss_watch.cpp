// SPDX-License-Identifier: Apache-2.0
// The spike rule against hand-made losses, and its state through a checkpoint.
#include <gtest/gtest.h>

#include <aerie/train/fixed_point.hpp>
#include <aerie/train/lead_time.hpp>
#include <aerie/train/loss_watch.hpp>

namespace aerie::train {
namespace {
std::int64_t fixed(double v) { return to_fixed_point(v); }
/// 16 losses 1.0, 1.1, 1.0, 1.1 ...: lower median 1.0, deviations eight of 0 and eight of 0.1, so the floor of 5 % counts.
LossWatch watch(double factor) {
  LossWatch w(factor);
  for (int i = 0; i < 16; ++i) w.add(fixed(i % 2 == 0 ? 1.0 : 1.1));
  return w;
}
}  // namespace

TEST(LossWatch, SpikeIsFarAboveTheMedian) {
  const auto w = watch(10);
  EXPECT_EQ(w.median(), fixed(1.0));
  EXPECT_FALSE(w.is_spike(fixed(1.49)));  // 1.0 + 10 x 0.05
  EXPECT_TRUE(w.is_spike(fixed(1.51)));
  EXPECT_FALSE(w.is_spike(fixed(0.01)));  // a fall is none
}

TEST(LossWatch, WideNoiseRaisesTheBar) {
  LossWatch w(10);
  for (int i = 0; i < 32; ++i) w.add(fixed(1.0 + 0.25 * (i % 4)));  // median 1.25, deviations 0, 0.25, 0.5: median 0.25
  EXPECT_EQ(w.median(), fixed(1.25));
  EXPECT_FALSE(w.is_spike(fixed(1.25 + 3.7)));  // 10 x 1.4826 x 0.25 = 3.7065
  EXPECT_TRUE(w.is_spike(fixed(1.25 + 3.71)));
}

TEST(LossWatch, NothingBeforeSixteenLossesNorWithFactorZero) {
  LossWatch w(10);
  for (int i = 0; i < 15; ++i) w.add(fixed(1.0));
  EXPECT_FALSE(w.is_spike(fixed(1000.0)));
  w.add(fixed(1.0));
  EXPECT_TRUE(w.is_spike(fixed(1000.0)));
  EXPECT_FALSE(watch(0).is_spike(fixed(1000.0)));
}

TEST(LossWatch, WindowForgetsTheOldest) {
  LossWatch w(10);
  for (int i = 0; i < 32; ++i) w.add(fixed(8.0));
  for (int i = 0; i < 32; ++i) w.add(fixed(2.0));
  EXPECT_EQ(w.median(), fixed(2.0));
  EXPECT_TRUE(w.is_spike(fixed(8.0)));
}

TEST(LossWatch, StateRoundTrips) {
  const auto w = watch(10);
  LossWatch back(10);
  back.add(fixed(5.0));
  back.restore(base::Json::parse(w.state().dump()));
  EXPECT_EQ(back.state(), w.state());
  EXPECT_TRUE(back.is_spike(fixed(1.51)));
  back.restore({});  // of a checkpoint without one
  EXPECT_EQ(back.median(), 0);
}

TEST(LeadTime, TwoSavesAndAStepMustFit) {
  EXPECT_EQ(lead_time_problem(100, 45, 10), "");
  EXPECT_NE(lead_time_problem(100, 45, 10.1), "");
  EXPECT_NE(lead_time_problem(100, 45, 10.1).find("100.1 s (2 x save 45.0 s + step 10.1 s), but only 100 s"), std::string::npos)
      << lead_time_problem(100, 45, 10.1);
  EXPECT_EQ(lead_time_problem(0, 45, 10), "");  // not known
}

}  // namespace aerie::train
