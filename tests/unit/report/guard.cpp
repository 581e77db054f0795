// SPDX-License-Identifier: Apache-2.0
// The no-progress guard, one story per test, the lines written by hand.
#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/report/ledger.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace report = aerie::report;

namespace {
struct Story {
  std::vector<base::Json> lines;
  std::int64_t number = 0;
  std::string program = "aerie-train";
  Story& begin(base::Json details = base::Json::object()) {
    lines.push_back(
        {{"kind", "attempt"}, {"event", "begin"}, {"number", ++number}, {"program", program}, {"details", std::move(details)}});
    return *this;
  }
  Story& end(int code, base::Json details = base::Json::object()) {
    lines.push_back({{"kind", "attempt"},
                     {"event", "end"},
                     {"number", number},
                     {"program", program},
                     {"exit_code", code},
                     {"details", std::move(details)}});
    return *this;
  }
  Story& died() { return begin(); }
  Story& checkpoint(std::int64_t step) {
    lines.push_back({{"kind", "checkpoint"}, {"step", step}, {"attempt", number}, {"program", program}});
    return *this;
  }
  Story& decision(const std::string& what, base::Json details = base::Json::object()) {
    lines.push_back({{"kind", "decision"}, {"what", what}, {"details", std::move(details)}});
    return *this;
  }
  std::int64_t count(std::optional<std::int64_t> done = {}) const {
    return report::attempts_without_progress(lines, program, done);
  }
};
}  // namespace

TEST(Guard, DeathsAndFailuresCount) {
  EXPECT_EQ(Story().count(), 0);
  EXPECT_EQ(Story().died().died().died().count(), 3);
  EXPECT_EQ(Story().begin().end(70).begin().end(76).died().count(), 3);
}
TEST(Guard, ProgressEndsTheRow) {
  EXPECT_EQ(Story().died().begin().checkpoint(10).died().count(), 1);
  EXPECT_EQ(Story().died().begin().end(76, {{"progress", true}}).died().died().count(), 2);
  EXPECT_EQ(Story().died().died().begin().end(0).count(), 0);
  EXPECT_EQ(Story().died().died().begin().end(0).died().count(), 1);
}
TEST(Guard, PublishingAnOldStepAgainIsNoProgress) {
  EXPECT_EQ(Story().begin().checkpoint(10).checkpoint(20).begin().checkpoint(20).begin().checkpoint(15).died().count(), 3);
  EXPECT_EQ(Story().begin().checkpoint(20).begin().checkpoint(21).count(), 0);
  EXPECT_EQ(Story().begin().checkpoint(20).decision("fresh-start").begin().checkpoint(5).count(), 0);
}
TEST(Guard, SafeStopsUseNothingUp) {
  Story story;
  for (int i = 0; i < 10; ++i) story.begin().end(75);
  EXPECT_EQ(story.count(), 0);
  EXPECT_EQ(Story().died().begin().end(75).died().begin().end(75).count(), 2);  // nor do they reset
  EXPECT_EQ(Story().died().begin().checkpoint(3).end(75).died().count(), 1);    // with progress they do
}
TEST(Guard, MoreWorkDoneIsProgressEvenOfOneThatDied) {
  EXPECT_EQ(Story().begin({{"done", 0}}).begin({{"done", 50}}).begin({{"done", 50}}).count(), 2);
  EXPECT_EQ(Story().begin({{"done", 0}}).begin({{"done", 0}}).count(7), 0);
  EXPECT_EQ(Story().begin({{"done", 7}}).begin({{"done", 7}}).count(7), 2);
  EXPECT_EQ(Story().begin({{"done", 0}}).end(76, {{"done", 3}}).count(3), 0);
  EXPECT_EQ(Story().begin({{"done", 9}}).begin({{"done", 2}}).begin({{"done", 5}}).count(),
            3);  // set back, not yet above the most ever
}
TEST(Guard, ProgramsAreCountedApart) {
  Story story;
  story.died().died();
  story.program = "aerie-extract";
  story.died().begin().end(0);
  EXPECT_EQ(story.count(), 0);
  story.program = "aerie-train";
  EXPECT_EQ(story.count(), 2);
}
TEST(Guard, ResetByDecision) {
  EXPECT_EQ(Story().died().died().died().decision("reset-attempts").died().count(), 1);
  EXPECT_EQ(Story().died().died().decision("reset-attempts", {{"program", "aerie-train"}}).count(), 0);
  EXPECT_EQ(Story().died().died().decision("reset-attempts", {{"program", "aerie-extract"}}).count(), 2);
}
TEST(Guard, OwnAttemptDoesNotCountAgainstItself) {
  aerie::test::TempDir run;
  report::Ledger ledger(run.path());
  const auto number = ledger.attempt_begin("aerie-train", {});
  EXPECT_EQ(report::attempts_without_progress(ledger.read(), "aerie-train"), 0);
  ledger.attempt_end(number, "aerie-train", 70, "");
  EXPECT_EQ(report::attempts_without_progress(ledger.read(), "aerie-train"), 1);
}
TEST(Guard, DamageIsADataError) { EXPECT_THROW(report::attempts_without_progress({{{"kind", 3}}}, "x"), base::DataError); }

TEST(Guard, TasksOfOneArrayDoNotCountForEachOther) {
  Story story;
  for (const auto* job : {"12_0", "12_1", "12_2", "12_3", "9"}) {  // at work at the same time: none has an end line
    story.begin({{"done", 5}});
    story.lines.back()["process"] = {{"job", job}};
  }
  const auto count = [&](const std::string& job) {
    return report::attempts_without_progress(story.lines, story.program, std::nullopt, job);
  };
  EXPECT_EQ(count("12_2"), 2);  // its own, and the one of job 9
  EXPECT_EQ(count("12"), 5);    // not a task of an array
  EXPECT_EQ(count("1_2"), 5);
  EXPECT_EQ(count(""), 5);
}
TEST(Guard, ATwinInAnotherContainerIsNotTheCaller) {
  aerie::test::TempDir run;
  report::Ledger ledger(run.path());
  ledger.attempt_begin("aerie-train", {});
  auto lines = ledger.read();
  const auto count = [&] { return report::attempts_without_progress(lines, "aerie-train"); };
  EXPECT_EQ(count(), 0) << "the caller's own, which has not ended";
  auto& process = lines[0]["process"];
  process["pid_namespace"] = process["pid_namespace"].get<std::int64_t>() + 1;  // its pid and start time are the same by chance
  EXPECT_EQ(count(), 1);
  process.erase("pid_namespace");  // an older program's
  EXPECT_EQ(count(), 0);
}
