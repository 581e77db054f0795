// SPDX-License-Identifier: Apache-2.0
// `aerie run` and `aerie vocab`: the phases that `aerie` does itself, and how it starts, stops and believes the others (stood in
// for by small scripts beside a copy of `aerie`).
#include <cstdlib>
#include <ctime>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <aerie/interchange/vocab_map.hpp>
#include <aerie/io/store.hpp>
#include <aerie/report/ledger.hpp>

#include "fake_gpus.hpp"
#include "fixture.hpp"

namespace {
using namespace aerie;
using test::aerie;

class Pipeline : public testing::Test {
 protected:
  test::TempDir dir;
  test::Run run{dir};
  /// `aerie` beside made-up programs.
  test::Ended run_with(const std::string& program, const std::string& script, const std::string& arguments) {
    std::filesystem::create_directories(dir / "bin");
    std::filesystem::copy_file(AERIE_BIN, dir / "bin/aerie", std::filesystem::copy_options::overwrite_existing);
    test::write(dir / "bin" / program, "#!/bin/bash\n" + script);
    std::filesystem::permissions(dir / "bin" / program, std::filesystem::perms::owner_all);
    return test::shell((dir / "bin/aerie").string() + " run " + run.name() + " " + arguments);
  }
  std::string state(const std::string& phase) const {
    std::string out = "pending";
    for (const auto& line : run.ledger())
      if (line.at("kind") == "phase" && line.at("phase") == phase) out = line.at("state");
    return out;
  }
};

TEST_F(Pipeline, complete_needs_every_sample_done_excluded_or_decided) {
  const auto verify = [&] { return aerie("run " + run.name() + " --from verify --to verify"); };
  EXPECT_EQ(verify().code, 66);  // no store
  run.make_store({0, 1}, {4});
  run.mark_extracted();
  const auto missing = verify();
  EXPECT_EQ(missing.code, 65);
  EXPECT_NE(missing.err.find("2 of 6 samples are missing"), std::string::npos) << missing.err;
  EXPECT_EQ(state("verify"), "failed");
  EXPECT_FALSE(std::filesystem::exists(run.path() / "store/COMPLETE"));
}

TEST_F(Pipeline, undecided_failures_are_named_with_the_command) {
  run.make_store({0, 1, 2}, {4, 5});
  run.mark_extracted();
  const auto refused = aerie("run " + run.name() + " --from verify --to verify");
  EXPECT_EQ(refused.code, 65);
  EXPECT_NE(refused.err.find("2 samples failed and nobody has decided about them: s4 (NONFINITE), s5 (NONFINITE)"),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("aerie accept-missing " + run.name() + " --ids s4,s5 --reason TEXT"), std::string::npos)
      << refused.err;
  EXPECT_FALSE(std::filesystem::exists(run.path() / "store/COMPLETE"));
  ASSERT_EQ(aerie("accept-missing " + run.name() + " --ids s4,s5 --reason test").code, 0);
  const auto done = aerie("run " + run.name() + " --from verify --to verify");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(state("verify"), "complete");
  EXPECT_TRUE(io::complete_marker_holds(io::Store::open(run.path() / "store")));
  EXPECT_EQ(run.ledger().back().at("evidence").at("accepted_missing"), 2);
  EXPECT_EQ(run.ledger().back().at("evidence").at("excluded"), 1);  // s3 needs no decision
  // Done once is done: the second time nothing is written.
  const auto lines = run.ledger().size();
  const auto again = aerie("run " + run.name() + " --from verify --to verify");
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(run.ledger().size(), lines);
  EXPECT_NE(again.out.find("3 done, 2 failed, 1 excluded by rule, 0 missing, of 6"), std::string::npos) << again.out;
}

TEST_F(Pipeline, a_phase_done_again_with_the_same_result_outdates_nothing) {
  run.make_store({0, 1, 2, 4, 5});
  run.mark_extracted();
  report::Ledger ledger(run.path());
  const auto extracted = [&](const char* state) {
    ledger.phase(report::Phase::extract, report::PhaseState::complete,
                 {{"store_uuid", "u"}, {"store_state", state}, {"samples", 0}});
  };
  const auto verify = [&] { return aerie("status " + run.name() + " --phase verify").out; };
  extracted("a");
  ASSERT_EQ(aerie("run " + run.name() + " --from verify --to verify").code, 0);
  EXPECT_EQ(verify(), "complete\n");
  extracted("a");
  EXPECT_EQ(verify(), "complete\n") << "nothing was left to do: not a sample is another";
  ledger.phase(report::Phase::extract, report::PhaseState::interrupted);
  EXPECT_EQ(verify(), "extract is not complete\n");
  extracted("a");
  EXPECT_EQ(verify(), "complete\n");
  extracted("b");
  EXPECT_EQ(verify(), "extract was done again\n");
  extracted("a");
  EXPECT_EQ(verify(), "complete\n") << "back to what was verified";
  ledger.phase(report::Phase::extract, report::PhaseState::complete, {{"tokens", 20}});
  EXPECT_EQ(verify(), "extract was done again\n") << "evidence that does not tell what was made";
}

TEST_F(Pipeline, status_shows_what_is_outdated) {
  run.make_store({0, 1, 2}, {4, 5});
  run.mark_extracted();
  ASSERT_EQ(aerie("accept-missing " + run.name() + " --all-failed --reason test").code, 0);
  ASSERT_EQ(aerie("run " + run.name() + " --from verify --to vocab").code, 0);
  const auto outdated = [&](const std::string& phase) {
    const auto status = aerie("status --json " + run.name()).json();
    for (const auto& p : status.at("phases"))
      if (p.at("phase") == phase) return p.at("outdated").is_null() ? "no" : p.at("outdated").get<std::string>();
    return std::string("none");
  };
  for (const auto* phase : {"prepare", "extract", "verify", "vocab", "train"}) EXPECT_EQ(outdated(phase), "no") << phase;
  const auto toml = test::read(run.path() / "aerie.toml");
  test::write(run.path() / "aerie.toml", std::string(toml).replace(toml.find("vocab_size = 3"), 14, "vocab_size = 2"));
  EXPECT_EQ(outdated("vocab"), "its configuration changed");
  EXPECT_EQ(outdated("verify"), "no");
  EXPECT_NE(aerie("status " + run.name()).out.find("vocab      complete, outdated: its configuration changed;"),
            std::string::npos)
      << aerie("status " + run.name()).out;
  test::write(run.path() / "aerie.toml", toml);
  EXPECT_EQ(outdated("vocab"), "no");
  // A failure of another kind than the one decided about.
  report::Ledger(run.path()).sample_failed(4, "s4", "TARGET", "");
  report::Ledger(run.path()).sample_failed(4, "s4", "NONFINITE", "");
  EXPECT_NE(outdated("extract").find("1 sample failed and nobody has decided about it: s4"), std::string::npos)
      << outdated("extract");
  const auto status = aerie("status --json " + run.name()).json();
  EXPECT_EQ(status.at("next").at("command"), "aerie accept-missing " + run.name() + " --ids s4 --reason TEXT");
}

TEST_F(Pipeline, a_damaged_store_is_not_completed) {
  run.make_store({0, 1, 2, 4, 5});
  run.mark_extracted();
  const auto part = run.path() / "store/parts/part-00000.h5";
  const auto at = test::read(part).find(std::string("\x80\x3f\x80\x3f\x80\x3f\x80\x3f", 8));
  ASSERT_NE(at, std::string::npos);
  test::flip_byte(part, static_cast<std::int64_t>(at));
  EXPECT_EQ(aerie("run " + run.name() + " --from verify --to verify").code, 65);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "store/COMPLETE"));
}

TEST_F(Pipeline, vocab_counts_loss_tokens_of_usable_samples) {
  const auto done = aerie("vocab " + run.name());
  ASSERT_EQ(done.code, 0) << done.err;
  const auto map = interchange::read_vocab_map(run.path() / "vocab.safetensors");
  // Five samples with loss on the ids 8 and 9; the third place goes to the lowest id.
  ASSERT_EQ(map.draft_size(), 3);
  EXPECT_EQ(map.target_id(0), 0);
  EXPECT_EQ(map.target_id(1), 8);
  EXPECT_EQ(map.target_id(2), 9);
  EXPECT_EQ(map.counts.at(8), 5);
  EXPECT_EQ(map.counts.at(9), 5);
  EXPECT_EQ(map.coverage(), 1.0);
  const auto line = run.ledger().back();
  EXPECT_EQ(line.at("phase"), "vocab");
  EXPECT_EQ(line.at("state"), "complete");
  EXPECT_EQ(line.at("evidence").at("tokens"), 10);
  EXPECT_NE(done.out.find("100.00 %"), std::string::npos) << done.out;
  run.make_checkpoint(1);
  EXPECT_EQ(aerie("vocab " + run.name() + " --draft.vocab_size 3").code, 0);
  EXPECT_EQ(aerie("vocab " + run.name() + " --draft.vocab_size 2").code, 78);  // checkpoints know the old one
  std::filesystem::remove_all(run.path() / "dataset");
  EXPECT_EQ(aerie("vocab " + run.name()).code, 66);
}

TEST_F(Pipeline, starts_programs_with_flags_and_passes_their_code_on) {
  run.mark_extracted();
  const auto e = run_with("aerie-extract", "echo \"args: $* threads $OMP_NUM_THREADS\"; exit 74\n",
                          "--from extract --again --train.steps 9 --extract.layers 1,2,3");
  EXPECT_EQ(e.code, 74) << e.err;
  EXPECT_EQ(e.out, "args: --run " + run.name() + " --extract.layers=1,2,3 --train.steps=9 threads 1\n");
  EXPECT_NE(e.err.find("phase extract ended with exit code 74"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("`aerie run " + run.name() + "` goes on here"), std::string::npos) << e.err;
}

TEST_F(Pipeline, a_program_that_lies_about_its_end_is_a_bug) {
  run.mark_extracted();
  EXPECT_EQ(run_with("aerie-extract", "exit 0\n", "--from extract").code, 70);  // no store was made
}

TEST_F(Pipeline, a_stop_reaches_the_program_as_usr2) {
  run.mark_extracted();
  const auto ready = (dir / "ready").string();
  const auto script =
      fmt::format("trap 'echo got USR2; exit 75' USR2\ntouch {}\nfor i in {{1..200}}; do sleep 0.05; done\n", ready);
  run_with("aerie-extract", script, "--help");  // writes the files
  const auto e = test::shell(fmt::format(
      "{0}/bin/aerie run {1} --from extract --again & p=$!; while [ ! -e {2} ]; do sleep 0.01; done; kill -TERM $p; wait $p",
      dir.path().string(), run.name(), ready));
  EXPECT_EQ(e.code, 75) << e.err;
  EXPECT_EQ(e.out, "got USR2\n");
  EXPECT_NE(e.err.find("stopped in phase extract"), std::string::npos) << e.err;
}

TEST_F(Pipeline, gpu_memory_is_looked_at_after_whatever_was_at_work) {
  const auto gpu = base::Json::object({{"name", "NVIDIA H200"}, {"memory_total", std::int64_t{150} << 30}});
  const test::FakeGpus gpus(base::Json::object({{"gpus", base::Json::array({gpu})}}));
  run.mark_extracted();
  run_with("aerie-preflight", "echo \"look: $*\"\n", "--help");
  const auto ends = [&](const std::string& how) { return run_with("aerie-extract", how + "\n", "--from extract --again"); };
  const auto look = "look: --run " + run.name() + " --after extract --quiet\n";
  for (const int code : {65, 70, 74, 75, 76, 137}) {
    const auto e = ends(fmt::format("exit {}", code));
    EXPECT_EQ(e.code, code) << e.err;
    EXPECT_EQ(e.out, look) << code;
  }
  EXPECT_EQ(ends("kill -KILL $$").out, look);
  for (const int code : {2, 66, 69, 78, 93})
    EXPECT_EQ(ends(fmt::format("exit {}", code)).out, "") << "refused to begin: " << code;
  EXPECT_EQ(ends("kill -TERM $PPID; sleep 1; exit 75").out, "") << "who signals waits for the end";
  ::setenv("AERIE_END_TIME", std::to_string(std::time(nullptr) + 35).c_str(), 1);
  EXPECT_EQ(ends("exit 65").out, "") << "the time is up";
  ::unsetenv("AERIE_END_TIME");
}

TEST_F(Pipeline, a_killed_program_and_a_missing_one) {
  run.mark_extracted();
  EXPECT_EQ(run_with("aerie-extract", "kill -KILL $$\n", "--from extract --again").code, 137);
  std::filesystem::remove(dir / "bin/aerie-extract");
  const auto e = test::shell((dir / "bin/aerie").string() + " run " + run.name() + " --from extract --again");
  EXPECT_EQ(e.code, 66);
  EXPECT_NE(e.err.find("aerie-extract: no such program"), std::string::npos) << e.err;
}

TEST_F(Pipeline, wrong_arguments_and_the_stop_file) {
  EXPECT_EQ(aerie("run " + run.name() + " --from trian").err, "error: unknown phase 'trian' (did you mean 'train'?)\n");
  EXPECT_EQ(aerie("run " + run.name() + " --from train --to extract").code, 2);
  EXPECT_EQ(aerie("run " + run.name() + " --ranks 0").code, 2);
  EXPECT_EQ(aerie("run " + run.name() + " --train.stepz 3").code, 2);
  EXPECT_EQ(aerie("run " + (dir / "none").string()).code, 66);
  test::write(run.path() / "stop", "");
  EXPECT_EQ(aerie("run " + run.name()).code, 75);
}

TEST_F(Pipeline, the_run_lock_names_its_holder) {
  const auto e = test::shell(
      fmt::format("echo 'aerie-train, job 12, host gpu07, pid 4' > {0}/run.lock; "
                  "python3 -c \"import fcntl,subprocess,sys; f=open('{0}/run.lock','r+'); fcntl.lockf(f,fcntl.LOCK_EX); "
                  "sys.exit(subprocess.call(['{1}','vocab','{0}']))\"",
                  run.name(), AERIE_BIN));
  EXPECT_EQ(e.code, 78);
  EXPECT_NE(e.err.find("is in use by aerie-train, job 12, host gpu07, pid 4"), std::string::npos) << e.err;
}

}  // namespace
