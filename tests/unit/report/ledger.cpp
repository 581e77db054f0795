// SPDX-License-Identifier: Apache-2.0
// Appending and replaying: what is on disk after each call, and what the lines add up to.
#include <aerie/report/ledger.hpp>

#include <chrono>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace report = aerie::report;
using report::Ledger;
using report::Phase;
using report::PhaseState;

TEST(Ledger, LinesCarryTimeKindAndIdentity) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  EXPECT_TRUE(ledger.read().empty());
  EXPECT_EQ(ledger.attempt_begin("aerie-train", {{"ranks", 4}}), 1);
  ledger.checkpoint_published(10, "checkpoints/step-00000010", "sha256:aa");
  ledger.attempt_end(1, "aerie-train", 75, "signal USR2", {{"progress", true}});
  EXPECT_EQ(Ledger(run.path()).attempt_begin("aerie-extract", {}), 2);  // numbers are of the run, not of the program
  const auto lines = base::read_json_lines(run / "ledger.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  const auto self = base::this_process();
  EXPECT_EQ(lines[0].at("kind"), "attempt");
  EXPECT_EQ(lines[0].at("event"), "begin");
  EXPECT_EQ(lines[0].at("process").at("pid"), self.pid);
  EXPECT_EQ(lines[0].at("process").at("host"), self.host);
  EXPECT_EQ(lines[0].at("process").at("boot_id"), self.boot_id);
  EXPECT_EQ(lines[0].at("details").at("ranks"), 4);
  EXPECT_EQ(lines[1].at("step"), 10);
  EXPECT_EQ(lines[1].at("attempt"), 1);
  EXPECT_EQ(lines[1].at("program"), "aerie-train");
  EXPECT_EQ(lines[2].at("exit_code"), 75);
  for (const auto& line : lines)
    EXPECT_EQ(line.at("time").get<std::string>().size(), std::string("2026-01-31T12:00:00.123Z").size());
}

TEST(Ledger, CompleteNeedsEvidence) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  EXPECT_THROW(ledger.phase(Phase::extract, PhaseState::complete), base::Bug);
  EXPECT_THROW(ledger.phase(Phase::extract, PhaseState::complete, base::Json::object()), base::Bug);
  EXPECT_TRUE(ledger.read().empty()) << "something was recorded all the same";
  ledger.phase(Phase::extract, PhaseState::running);
  EXPECT_EQ(report::replay(ledger.read()).phases.at(Phase::extract).state, PhaseState::running);
  base::append_line(run / "ledger.jsonl", R"({"time":"t","kind":"phase","phase":"extract","state":"complete"})");  // by hand
  EXPECT_EQ(report::replay(ledger.read()).phases.at(Phase::extract).state, PhaseState::running);
  ledger.phase(Phase::extract, PhaseState::complete, {{"samples", 300}});
  const auto record = report::replay(ledger.read()).phases.at(Phase::extract);
  EXPECT_EQ(record.state, PhaseState::complete);
  EXPECT_EQ(record.evidence, (base::Json{{"samples", 300}}));
  EXPECT_EQ(record.since, ledger.read().back().at("time").get<std::string>());
}

TEST(Ledger, PhaseNamesAreThoseDocumented) {
  const std::vector<std::string> names{"prepare", "preflight", "extract", "verify", "vocab", "train", "eval", "export", "bench"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(report::phase_name(static_cast<Phase>(i)), names[i]);
    EXPECT_EQ(report::phase_from_name(names[i]), static_cast<Phase>(i));
  }
  EXPECT_THROW(report::phase_from_name("export_"), base::DataError);
}

TEST(Ledger, TornLastLineIsLostAloneAndTheNextStandsAlone) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.sample_failed(1, "a", "NONFINITE", "layer 3");
  std::ofstream(run / "ledger.jsonl", std::ios::app) << R"({"kind":"decision","details":{"ids":["a"]})";  // ends with a bracket
  EXPECT_EQ(ledger.read().size(), 1U);
  ledger.sample_failed(2, "b", "NONFINITE", "layer 3");
  const auto state = report::replay(ledger.read());
  ASSERT_EQ(state.failed.size(), 2U);
  EXPECT_FALSE(state.failed[0].decided) << "the torn decision was taken for whole";
  EXPECT_EQ(state.failed[1].id, "b");
}

TEST(Ledger, TextThatIsNotUtf8DoesNotLoseTheLine) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.sample_failed(7, "bad\xff\xfeid", "TEMPLATE", "\x80");
  const auto state = report::replay(ledger.read());
  ASSERT_EQ(state.failed.size(), 1U);
  EXPECT_EQ(state.failed[0].sample, 7);
  EXPECT_EQ(state.failed[0].reason, "TEMPLATE");
}

TEST(Ledger, TwoProcessesNeverTakeOneNumber) {
  aerie::test::TempDir run;
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < 5; ++i) Ledger(run.path()).attempt_begin("aerie-extract", {});
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  std::set<std::int64_t> numbers;
  for (const auto& line : Ledger(run.path()).read()) numbers.insert(line.at("number").get<std::int64_t>());
  EXPECT_EQ(numbers.size(), 15U);
  EXPECT_EQ(*numbers.rbegin(), 15);
}

TEST(Replay, AttemptsAndHowTheyEnded) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  const auto a = ledger.attempt_begin("aerie-train", {{"ranks", 4}, {"loaded_step", -1}});
  const auto b = ledger.attempt_begin("aerie-train", {{"ranks", 2}});
  ledger.attempt_end(b, "aerie-train", 74, "disk full", {{"last_step", 5}});
  ledger.attempt_end(99, "aerie-train", 0, "its begin is lost");
  const auto state = report::replay(ledger.read());
  ASSERT_EQ(state.attempts.size(), 2U);
  EXPECT_EQ(state.attempts[0].number, a);
  EXPECT_EQ(state.attempts[0].exit_code, -1);
  EXPECT_TRUE(state.attempts[0].end.empty());
  EXPECT_EQ(state.attempts[0].ranks, 4);
  EXPECT_EQ(state.attempts[1].exit_code, 74);
  EXPECT_EQ(state.attempts[1].reason, "disk full");
  EXPECT_EQ(state.attempts[1].end_details.at("last_step"), 5);
  EXPECT_EQ(state.attempts[1].host, base::host_name());
}

TEST(Replay, FailedSamplesDecisionsAndTodos) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.sample_failed(5, "five", "NONFINITE", "first");
  ledger.sample_failed(3, "three", "TOO_LONG", "");
  ledger.sample_failed(5, "five", "TARGET", "second");
  ledger.sample_failed(9, "nine", "TARGET", "");
  ledger.decision("accept-missing", {{"ids", {"three", 9}}, {"reason", "known"}, {"by", "me"}});
  ledger.todo("mend part 3", "high", "open");
  ledger.todo("look", "low", "open");
  ledger.todo("mend part 3", "high", "done");
  const auto state = report::replay(ledger.read());
  ASSERT_EQ(state.failed.size(), 3U);  // by sample
  EXPECT_EQ(state.failed[0].id, "three");
  EXPECT_TRUE(state.failed[0].decided);
  EXPECT_EQ(state.failed[1].text, "second");
  EXPECT_FALSE(state.failed[1].decided);
  EXPECT_TRUE(state.failed[2].decided);  // named by its number
  EXPECT_EQ(state.decisions.size(), 1U);
  ASSERT_EQ(state.todos.size(), 2U);
  EXPECT_EQ(state.todos[0].at("status"), "done");
}

TEST(Ledger, ManyFailedSamplesAreOneAppend) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.samples_failed({});
  EXPECT_FALSE(std::filesystem::exists(ledger.path()));
  ledger.attempt_begin("aerie-extract", {});
  std::ofstream(ledger.path(), std::ios::app) << R"({"kind":"decision","details":{"ids":["a"]})";  // torn
  std::vector<report::FailedSample> many;
  for (int i = 0; i < 10000; ++i)
    many.push_back({i, "conversation-" + std::to_string(i), "NONFINITE", "layer 30 holds NaN in 4096 values"});
  const auto start = std::chrono::steady_clock::now();
  ledger.samples_failed(many);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);  // one fsync each would be 10,000 of them
  const auto lines = ledger.read();
  ASSERT_EQ(lines.size(), 10001U);
  EXPECT_EQ(lines[1].at("sample"), 0);
  EXPECT_EQ(lines.back().at("id"), "conversation-9999");
  EXPECT_EQ(lines.back().at("attempt"), 1);
  const auto state = report::replay(lines);
  EXPECT_EQ(state.failed.size(), 10000U);
  EXPECT_EQ(state.failed[7].text, "layer 30 holds NaN in 4096 values");
}

TEST(Replay, ADecisionCoversWhatHadFailedBefore) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  const auto decided = [&](std::size_t i) { return report::replay(ledger.read()).failed.at(i).decided; };
  ledger.decision("accept-missing", {{"ids", {"later", 2}}, {"reason", "a hand's: nothing has failed yet"}});
  ledger.sample_failed(1, "later", "NONFINITE", "");
  ledger.sample_failed(2, "also", "NONFINITE", "");
  EXPECT_FALSE(decided(0)) << "decided before it failed";
  EXPECT_FALSE(decided(1));
  ledger.decision("accept-missing", {{"ids", {"later"}}});
  EXPECT_TRUE(decided(0));
  EXPECT_FALSE(decided(1));
  ledger.sample_failed(1, "later", "NONFINITE", "once more");
  EXPECT_TRUE(decided(0)) << "the same failure";
  ledger.sample_failed(1, "later", "TARGET", "another");
  EXPECT_FALSE(decided(0)) << "another failure has to be decided again";
  ledger.sample_failed(1, "later", "NONFINITE", "");
  EXPECT_FALSE(decided(0));
  ledger.decision("accept-missing", {{"ids", {1}}});
  EXPECT_TRUE(decided(0));
}

TEST(Replay, KeepsEveryCompletion) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.phase(Phase::extract, PhaseState::complete, {{"n", 1}});
  ledger.phase(Phase::extract, PhaseState::interrupted);
  ledger.phase(Phase::train, PhaseState::complete, {{"n", 2}});
  ledger.phase(Phase::extract, PhaseState::complete, {{"n", 3}});
  const auto state = report::replay(ledger.read());
  ASSERT_EQ(state.completions.at(Phase::extract).size(), 2U);
  EXPECT_EQ(state.completions.at(Phase::extract)[0].line, 1U);
  EXPECT_EQ(state.completions.at(Phase::extract)[1].evidence, (base::Json{{"n", 3}}));
  EXPECT_EQ(state.phases.at(Phase::extract).line, 4U);
}

TEST(Replay, CheckpointsAndAFreshStart) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.attempt_begin("aerie-train", {});
  ledger.checkpoint_published(10, "p", "h");
  ledger.checkpoint_published(5, "p", "h");
  auto state = report::replay(ledger.read());
  EXPECT_EQ(state.last_checkpoint_step, 10);
  EXPECT_TRUE(state.attempts[0].progress);
  ledger.decision("fresh-start", {});
  EXPECT_EQ(report::replay(ledger.read()).last_checkpoint_step, -1);
  ledger.checkpoint_published(2, "p", "h");
  EXPECT_EQ(report::replay(ledger.read()).last_checkpoint_step, 2);
}

TEST(Replay, PassesOverTheUnknownAndNamesTheDamaged) {
  EXPECT_NO_THROW(report::replay({{{"kind", "of-a-later-version"}}, {{"kind", "evidence"}, {"what", "x"}}}));
  for (const auto& bad : std::vector<base::Json>{{{"kind", 3}},
                                                 {{"kind", "phase"}, {"phase", "x"}, {"state", "running"}, {"time", "t"}},
                                                 {{"kind", "attempt"}, {"event", "begin"}},
                                                 base::Json(3)}) {
    const auto error = base::capture([&] { report::replay({{{"kind", "evidence"}}, bad}); });
    ASSERT_TRUE(error) << bad;
    EXPECT_EQ(error->code(), base::ExitCode::data);
    EXPECT_NE(std::string(error->what()).find("record 2"), std::string::npos) << error->what();
  }
}
