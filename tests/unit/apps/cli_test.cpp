// SPDX-License-Identifier: Apache-2.0
// The command line itself: commands, help, version, explain-exit, may-requeue, ledger.
#include <gtest/gtest.h>

#include <cstdlib>

#include <fmt/format.h>

#include <aerie/base/exit_codes.hpp>
#include <aerie/report/ledger.hpp>

#include "fixture.hpp"

namespace {
using namespace aerie;
using test::aerie;

const std::vector<std::string> all_commands{"init",   "run",     "submit",         "status",      "ledger", "vocab",
                                            "verify", "inspect", "accept-missing", "may-requeue", "import", "explain-exit"};

TEST(CommandLine, wrong_commands_are_usage_errors) {
  const auto none = aerie("");
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err, "error: no command is given (`aerie --help` lists the commands)\n");
  const auto typo = aerie("statsu /x");
  EXPECT_EQ(typo.code, 2);
  EXPECT_EQ(typo.err, "error: unknown command 'statsu' (did you mean 'status'?)\n");
  EXPECT_EQ(aerie("status /x --jsno").err, "error: unknown flag '--jsno' (did you mean '--json'?)\n");
  EXPECT_EQ(aerie("status").code, 2);
  EXPECT_EQ(aerie("status a b").code, 2);
}

TEST(CommandLine, help_lists_every_command_and_every_command_has_help) {
  const auto help = aerie("--help");
  EXPECT_EQ(help.code, 0);
  for (const auto& c : all_commands) {
    EXPECT_NE(help.out.find("  " + c + " "), std::string::npos) << c;
    const auto own = aerie(c + " --help");
    EXPECT_EQ(own.code, 0) << c << own.err;
    EXPECT_NE(own.out.find("Usage"), std::string::npos) << c;
  }
}

TEST(CommandLine, version) {
  const auto json = aerie("--version --json");
  ASSERT_EQ(json.code, 0);
  for (const auto* library : {"mpi", "hdf5", "xxhash"}) {
    EXPECT_FALSE(json.json().at("libraries").at(library).at("compiled").get<std::string>().empty());
    EXPECT_FALSE(json.json().at("libraries").at(library).at("loaded").get<std::string>().empty());
  }
  EXPECT_EQ(aerie("--version").out.rfind("aerie ", 0), 0U);
}

TEST(ExplainExit, every_documented_code) {
  for (const auto& row : base::exit_code_table()) {
    const auto said = aerie(fmt::format("explain-exit {}", static_cast<int>(row.code)));
    EXPECT_EQ(said.code, 0);
    EXPECT_EQ(said.out.rfind(fmt::format("{} {}: ", static_cast<int>(row.code), row.name), 0), 0U) << said.out;
  }
  EXPECT_EQ(aerie("explain-exit 137").code, 0);
  EXPECT_EQ(aerie("explain-exit 42").code, 2);
  EXPECT_EQ(aerie("explain-exit many").code, 2);
}

TEST(MayRequeue, stops_a_crash_loop_after_three) {
  test::TempDir dir;
  const auto ask = [&](int code) { return aerie(fmt::format("may-requeue --run {} {}", dir.path().string(), code)).code; };
  EXPECT_EQ(ask(1), 0);
  for (int i = 1; i <= 3; ++i) {
    report::Ledger ledger(dir.path());
    const auto n = ledger.attempt_begin("aerie-train", {{"ranks", 2}});
    ledger.attempt_end(n, "aerie-train", 76, "a peer died");
    EXPECT_EQ(ask(76), i < 3 ? 0 : 93);
  }
  EXPECT_EQ(ask(75), 0);
  report::Ledger ledger(dir.path());
  const auto n = ledger.attempt_begin("aerie-train", {{"ranks", 2}});
  ledger.checkpoint_published(10, "step-00000010", "hash");
  ledger.attempt_end(n, "aerie-train", 76, "a peer died");
  EXPECT_EQ(ask(76), 0);
  EXPECT_EQ(aerie("may-requeue --run /nothing/there 76").code, 66);
}

TEST(MayRequeue, a_warning_that_met_a_starting_program_counts_as_a_stop) {
  test::TempDir dir;
  for (int i = 0; i < 4; ++i)
    for (const int code : {75, 138, 140})
      EXPECT_EQ(test::shell(fmt::format("SLURM_JOB_ID=7 SLURM_RESTART_COUNT={} {} may-requeue --run {} --program aerie-train {}",
                                        i, AERIE_BIN, dir.path().string(), code))
                    .code,
                0);
  EXPECT_TRUE(report::Ledger(dir.path()).read().empty());
}

TEST(MayRequeue, deaths_before_the_program_could_record_its_start_count_too) {
  test::TempDir dir;
  const auto ask = [&](int restart) {
    return test::shell(fmt::format("SLURM_JOB_ID=7 SLURM_RESTART_COUNT={} {} may-requeue --run {} --program aerie-train 137",
                                   restart, AERIE_BIN, dir.path().string()))
        .code;
  };
  EXPECT_EQ(ask(0), 0);
  EXPECT_EQ(ask(1), 0);
  EXPECT_EQ(ask(1), 0);  // asked twice about one death
  EXPECT_EQ(ask(2), 93);
  const auto attempts = report::replay(report::Ledger(dir.path()).read()).attempts;
  ASSERT_EQ(attempts.size(), 3U);
  EXPECT_EQ(attempts[0].job, "7");
  EXPECT_EQ(attempts[0].exit_code, 137);
}

TEST(Status, tells_a_job_script_how_its_own_attempt_ended) {
  test::TempDir dir;
  const auto ask = [&](const std::string& job) {
    return test::shell(fmt::format("{} {} status {} --attempt aerie-extract", job, AERIE_BIN, dir.path().string())).out;
  };
  report::Ledger ledger(dir.path());
  ::setenv("SLURM_JOB_ID", "7", 1);
  const auto first = ledger.attempt_begin("aerie-extract", {{"restart_count", 0}});
  ledger.attempt_end(first, "aerie-extract", 75, "stopped");
  const auto second = ledger.attempt_begin("aerie-extract", {{"restart_count", 1}});
  EXPECT_EQ(ask("SLURM_JOB_ID=7"), "75\n");
  EXPECT_EQ(ask("SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1"), "no end\n");
  EXPECT_EQ(ask("SLURM_JOB_ID=7 SLURM_RESTART_COUNT=2"), "none\n");
  EXPECT_EQ(ask("SLURM_JOB_ID=8"), "none\n");
  ledger.attempt_end(second, "aerie-extract", 0, "done");
  EXPECT_EQ(ask("SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1"), "0\n");
  ::unsetenv("SLURM_JOB_ID");
}

TEST(MayRequeue, extraction_that_dies_after_commits_goes_on) {
  test::TempDir dir;
  test::Run run(dir);
  const auto die = [&](std::int64_t done) {
    report::Ledger(run.path()).attempt_begin("aerie-extract", {{"done", done}});
    return aerie("may-requeue --program aerie-extract --run " + run.name() + " 137").code;
  };
  run.make_store({0, 1, 2});
  EXPECT_EQ(die(0), 0);
  EXPECT_EQ(die(2), 0);
  EXPECT_EQ(die(2), 0);
  EXPECT_EQ(die(2), 0);  // the store holds 3
  EXPECT_EQ(die(3), 0);
  EXPECT_EQ(die(3), 0);
  EXPECT_EQ(die(3), 93);
}

TEST(LedgerCommand, prints_events) {
  test::TempDir dir;
  EXPECT_EQ(aerie("ledger " + dir.path().string()).code, 66);
  report::Ledger(dir.path()).phase(report::Phase::extract, report::PhaseState::complete, {{"done", 7}});
  const auto people = aerie("ledger " + dir.path().string());
  EXPECT_NE(people.out.find("extract complete: done 7"), std::string::npos) << people.out;
  EXPECT_EQ(aerie("ledger --json " + dir.path().string()).json().at("phase"), "extract");
}

}  // namespace
