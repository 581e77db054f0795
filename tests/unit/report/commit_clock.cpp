// SPDX-License-Identifier: Apache-2.0
// When a program counts as stalled: clocks run by hand.
#include <aerie/report/commit_clock.hpp>

#include <gtest/gtest.h>

namespace report = aerie::report;
using aerie::base::Json;

namespace {
Json snapshot(const report::CommitClock& clock) {
  Json out;
  clock.add_to(out);
  return out;
}
bool stalled(const report::CommitClock& clock, double now) { return report::judge(snapshot(clock), now)->stalled; }
}  // namespace

TEST(CommitClock, NothingIsSaidBeforeItIsKnownWhatIsUsual) {
  EXPECT_FALSE(report::judge(Json{}, 1e9));
  EXPECT_FALSE(report::judge({{"phase", "train"}}, 1e9)) << "a snapshot without a clock";
  report::CommitClock clock(40, 1000);
  clock.advance(40, 1001);  // what an earlier attempt left is no commit of this one
  EXPECT_TRUE(snapshot(clock).at("last_commit_unix").is_null());
  EXPECT_FALSE(stalled(clock, 1000 + report::patience_s));
  EXPECT_TRUE(stalled(clock, 1001 + report::patience_s)) << "an hour without a first commit";
  clock.advance(41, 1100);
  clock.advance(42, 1102);
  EXPECT_TRUE(snapshot(clock).at("median_commit_interval_s").is_null()) << "one interval says nothing";
  EXPECT_FALSE(stalled(clock, 1102 + report::patience_s));
}

TEST(CommitClock, TenMedianIntervals) {
  report::CommitClock clock(0, 0);
  double now = 500;  // loading took its time: no interval
  for (int i = 1; i <= 5; ++i) clock.advance(i, now += 4);
  clock.advance(6, now += 300);  // one hiccup does not move the median
  EXPECT_DOUBLE_EQ(*clock.median_interval_s(), 4);
  EXPECT_FALSE(stalled(clock, now + 40));
  EXPECT_TRUE(stalled(clock, now + 40.1));
  const auto s = report::judge(snapshot(clock), now + 41);
  EXPECT_DOUBLE_EQ(s->since_unix, now);
  EXPECT_DOUBLE_EQ(s->limit_s, 40);
  EXPECT_FALSE(report::judge(snapshot(clock), now + 41, now + 30)->stalled) << "another job wrote to the store since";
  clock.advance(6, now + 40);
  EXPECT_TRUE(stalled(clock, now + 41)) << "looking without finding more is no commit";
}

TEST(CommitClock, QuickCommitsHaveTheSnapshotsAgeToHideIn) {
  report::CommitClock clock(0, 0);
  for (int i = 1; i <= 5; ++i) clock.advance(i, 0.01 * i);
  EXPECT_FALSE(stalled(clock, 9.9));
  EXPECT_TRUE(stalled(clock, 10.1));
}

TEST(CommitClock, APauseIsNoSilenceAndNoInterval) {
  report::CommitClock clock(0, 0);
  for (int i = 1; i <= 5; ++i) clock.advance(i, 2.0 * i);
  clock.pause(10);
  EXPECT_FALSE(stalled(clock, 10 + 600));
  clock.advance(6, 700);
  EXPECT_DOUBLE_EQ(*clock.median_interval_s(), 2);
  EXPECT_FALSE(stalled(clock, 720));
  EXPECT_TRUE(stalled(clock, 721));
}

TEST(CommitClock, FollowsAChangeOfPaceAndForgetsTheOld) {
  report::CommitClock clock(0, 0);
  double now = 0;
  for (int i = 1; i <= 1000; ++i) clock.advance(i, now += 1);
  for (int i = 1; i <= 33; ++i) clock.advance(1000 + i, now += 50);  // of the last 64 more than half
  EXPECT_DOUBLE_EQ(*clock.median_interval_s(), 50);
}
