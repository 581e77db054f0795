// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a start passes over, and when a fresh start was decided on, from hand-made ledgers.
#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/report/train_history.hpp>

namespace aerie::report {
namespace {
using base::Json;
using Steps = std::set<std::int64_t>;

Json end(int code, Json details) {
  return {{"kind", "attempt"}, {"event", "end"},     {"number", 1}, {"program", "aerie-train"},
          {"exit_code", code}, {"details", details}, {"reason", ""}};
}
Json in_vain(int code, std::int64_t loaded) { return end(code, {{"loaded_step", loaded}}); }
Json while_loading(int code, std::int64_t loaded) { return end(code, {{"loaded_step", loaded}, {"loading", true}}); }
Json decision(const char* what, Json details = Json::object()) {
  return {{"kind", "decision"}, {"what", what}, {"details", details}};
}
Json published(std::int64_t step, Json details = Json::object()) {
  return {{"kind", "checkpoint"}, {"program", "aerie-train"}, {"step", step}, {"path", "p"}, {"details", details}};
}
Steps avoid(const std::vector<Json>& lines) { return train_history(lines).avoid; }
}  // namespace

TEST(TrainHistory, TwoEndsWithTheSameCodeBeforeTheFirstStep) {
  for (const int code : {65, 70}) {
    EXPECT_EQ(avoid({in_vain(code, 40)}), Steps{});
    EXPECT_EQ(avoid({in_vain(code, 40), in_vain(code, 40)}), Steps{40});
  }
  EXPECT_EQ(avoid({in_vain(65, 40), in_vain(70, 40)}), Steps{});  // not the same code
  EXPECT_EQ(avoid({in_vain(65, 40), in_vain(65, 50)}), Steps{});  // not the same checkpoint
  EXPECT_EQ(avoid({in_vain(74, 40), in_vain(74, 40)}), Steps{});
}

TEST(TrainHistory, TwoFailuresWhileLoadingOfAnyCode) {
  EXPECT_EQ(avoid({while_loading(74, 40)}), Steps{});
  EXPECT_EQ(avoid({while_loading(74, 40), while_loading(70, 40)}), Steps{40});
}

TEST(TrainHistory, StopsKillsAndRefusalsDoNotCount) {
  for (const int code : {0, 2, 75, 76, 78, 93, 137, 143}) {
    EXPECT_EQ(avoid({while_loading(code, 40), while_loading(code, 40)}), Steps{}) << code;
    EXPECT_EQ(avoid({in_vain(65, 40), while_loading(code, 40), in_vain(65, 40)}), Steps{40}) << code;  // nor do they clear
  }
}

TEST(TrainHistory, AStepOrADecisionClears) {
  const auto a = in_vain(65, 40);
  EXPECT_EQ(avoid({a, end(65, {{"loaded_step", 40}, {"steps", 3}}), a}), Steps{});
  EXPECT_EQ(avoid({a, a, decision("reset-attempts")}), Steps{});
  EXPECT_EQ(avoid({a, a, decision("reset-attempts", {{"program", "aerie-extract"}})}), Steps{40});
  EXPECT_EQ(avoid({a, a, decision("fresh-start")}), Steps{});
  auto other = a;
  other["program"] = "aerie-eval";
  EXPECT_EQ(avoid({other, other}), Steps{});
}

TEST(TrainHistory, FreshStartHoldsUntilSomethingIsPublished) {
  auto h = train_history({published(3)});
  EXPECT_TRUE(h.ever_published && h.published && !h.fresh_start);
  h = train_history({published(3), decision("fresh-start", {{"set_aside", {"step-00000003.bad"}}})});
  EXPECT_TRUE(h.ever_published && !h.published && h.fresh_start);
  EXPECT_EQ(h.set_aside, std::vector<std::string>{"step-00000003.bad"});
  h = train_history({decision("fresh-start"), published(3)});
  EXPECT_TRUE(h.published);
}

TEST(TrainHistory, LastMeasuredTimes) {
  EXPECT_EQ(train_history({}).save_s, 0);
  const auto h =
      train_history({published(3, {{"save_s", 2.5}, {"step_s", 0.5}}), published(6, {{"save_s", 4.0}, {"step_s", 1.0}})});
  EXPECT_EQ(h.save_s, 4.0);
  EXPECT_EQ(h.step_s, 1.0);
  EXPECT_THROW(train_history({published(3, {{"save_s", "long"}})}), base::DataError);
}

}  // namespace aerie::report
