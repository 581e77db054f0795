// SPDX-License-Identifier: Apache-2.0
// `aerie submit`: what it hands to sbatch (stood in for by a script that notes its arguments), the scripts it writes, what it
// refuses. That the jobs do their work is for tests/slurm, on a real Slurm.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include <aerie/report/ledger.hpp>

#include "fixture.hpp"

namespace {
using namespace aerie;

class Submit : public testing::Test {
 protected:
  test::TempDir dir;
  test::Run run{dir};
  std::filesystem::path bin = dir / "bin";

  void SetUp() override {
    run.mark_extracted();
    test::write(run.path() / "store/nothing", "");  // the ledger says extracted, but the store is gone
    ASSERT_EQ(test::aerie("vocab " + run.name()).code, 0);
    site("");
    fake("sbatch",
         fmt::format(
             "echo \"$@\" >> {0}/calls; n=$(wc -l < {0}/calls); [ \"$n\" != \"${{FAIL_AT:-0}}\" ] || exit 1; echo $((40 + n))",
             dir.path().string()));
    fake("squeue", fmt::format("echo \"$@\" >> {0}/asked; cat {0}/queue 2>/dev/null; exit 0", dir.path().string()));
    fake("scancel", fmt::format("echo \"$@\" > {}/cancelled", dir.path().string()));
  }
  void fake(const std::string& name, const std::string& script) {
    test::write(bin / name, "#!/bin/bash\n" + script + "\n");
    std::filesystem::permissions(bin / name, std::filesystem::perms::owner_all);
  }
  void site(const std::string& more) { test::write(dir / "site.env", "GPUS_PER_NODE=2\n" + more); }
  test::Ended submit(const std::string& flags = "", const std::string& environment = "") {
    return test::shell(fmt::format("{} PATH={}:$PATH {} submit {} --site {} {}", environment, bin.string(), AERIE_BIN, run.name(),
                                   (dir / "site.env").string(), flags));
  }
  /// What squeue says; RUN stands for the run directory.
  void queue(const std::vector<std::string>& rows) {
    std::string text;
    for (auto row : rows) {
      if (const auto at = row.find("RUN/"); at != std::string::npos) row.replace(at, 3, run.name());
      text += row + "\n";
    }
    test::write(dir / "queue", text);
  }
  base::Json status() {
    const auto e = test::shell(fmt::format("PATH={}:$PATH {} status --json {}", bin.string(), AERIE_BIN, run.name()));
    EXPECT_EQ(e.code, 0) << e.err;
    return e.json();
  }
  std::string calls() const { return test::read(dir / "calls"); }
  std::string script(const std::string& name) const { return test::read(run.path() / "jobs" / (name + ".sbatch")); }
};

TEST_F(Submit, a_chain_in_which_each_job_needs_the_one_before) {
  const auto done = submit();
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "extract 41\nfinalize 42\ntrain 43\neval 44\nexport 45\n");
  const auto jobs = (run.path() / "jobs").string();
  const std::string kill = "--parsable --kill-on-invalid-dep=yes ";
  EXPECT_EQ(calls(), kill + jobs + "/extract.sbatch\n" +                                    //
                         kill + "--dependency=afterok:41 " + jobs + "/finalize.sbatch\n" +  //
                         kill + "--dependency=afterok:42 " + jobs + "/train.sbatch\n" +     //
                         kill + "--dependency=afterok:43 " + jobs + "/eval.sbatch\n" +      //
                         kill + "--dependency=afterok:43,afterany:44 " + jobs + "/export.sbatch\n");
  const auto line = run.ledger().back();
  EXPECT_EQ(line.at("kind"), "submit");
  EXPECT_EQ(line.at("details").at("jobs").at(2).at("job"), "43");
  EXPECT_EQ(line.at("details").at("jobs").at(2).at("phase"), "train");
}

TEST_F(Submit, dry_run_writes_and_submits_nothing) {
  const auto before = run.ledger().size();
  const auto dry = submit("--dry-run");
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("afterok:<finalize>"), std::string::npos) << dry.out;
  EXPECT_EQ(calls(), "");
  EXPECT_EQ(run.ledger().size(), before);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "jobs"));
}

TEST_F(Submit, from_and_to) {
  EXPECT_EQ(submit("--from train --to train").out, "finalize 41\ntrain 42\n");  // the store is not verified
  EXPECT_EQ(submit("--from train --to extract").code, 2);
  EXPECT_EQ(submit("--from vocab").code, 2);
}

TEST_F(Submit, scripts_carry_the_sites_wishes_and_all_paths) {
  site("SUBMIT_ALL='--partition=gpu --account=\"a b\"'\nSUBMIT_TRAIN='--nodes=2-8 --time=1-00:00:00 --signal=B:USR2@600'\n");
  ASSERT_EQ(submit("--array 3").code, 0);
  const auto train = script("train");
  const auto header = train.substr(0, train.find("# Written by"));
  EXPECT_NE(header.find("--gres=gpu:2"), std::string::npos) << header;
  EXPECT_LT(header.find("--nodes=1-4"), header.find("#SBATCH --nodes=2-8 --time=1-00:00:00")) << header;  // the last one counts
  EXPECT_NE(header.find("#SBATCH --partition=gpu --account=\"a b\"\n"), std::string::npos) << header;
  EXPECT_NE(header.find(fmt::format("#SBATCH --output=\"{}/logs/aerie-train-%j.out\"", run.name())), std::string::npos) << header;
  EXPECT_NE(train.find("export RUN=" + run.name() + " "), std::string::npos) << train;
  EXPECT_NE(train.find("AERIE_WARNING=600\n"), std::string::npos) << train;
  EXPECT_EQ(header.find("--array"), std::string::npos);
  EXPECT_NE(script("extract").find("#SBATCH --array=0-2 --nodes=1\n"), std::string::npos) << script("extract");
  EXPECT_EQ(test::shell("bash -n " + (run.path() / "jobs/extract.sbatch").string()).code, 0);
  site("GRES=none\n");
  std::filesystem::remove(dir / "calls");
  ASSERT_EQ(submit().code, 0);
  for (const auto* name : {"extract", "train", "eval"}) EXPECT_EQ(script(name).find("--gres"), std::string::npos) << script(name);
}

TEST_F(Submit, a_limit_that_is_not_longer_than_the_warning_is_refused) {
  const auto code = [&](const std::string& wish) {
    site("SUBMIT_TRAIN='" + wish + "'\n");
    return submit("--dry-run").code;
  };
  EXPECT_EQ(code("--time=5"), 2);  // 300 s, warned 300 s before the end
  EXPECT_EQ(code("--time=6"), 0);
  EXPECT_EQ(code("-t 5:39"), 2);
  EXPECT_EQ(code("-t 5:40"), 0);
  EXPECT_EQ(code("-t5"), 2);
  EXPECT_EQ(code("--time=0:05:39"), 2);
  EXPECT_EQ(code("--time=0-1"), 0);  // a day and an hour field: one hour
  EXPECT_EQ(code("--time=1 --signal=B:USR2@20"), 0);
  EXPECT_EQ(code("--time=1 --signal=B:USR2@21"), 2);
  EXPECT_EQ(code("--time=1 --signal=USR2"), 2);  // sbatch's own default is 60 s
  EXPECT_EQ(code("--time=UNLIMITED"), 0);
  EXPECT_EQ(code("--time=soon"), 2);
}

TEST_F(Submit, refuses_what_cannot_go_well) {
  test::write(run.path() / "stop", "");
  EXPECT_EQ(submit().code, 75);
  std::filesystem::remove(run.path() / "stop");
  std::filesystem::remove(dir / "site.env");
  EXPECT_EQ(submit().code, 66);
  test::write(dir / "site.env", "if\n");
  EXPECT_EQ(submit().code, 2);
  test::write(dir / "site.env", "LAUNCHER=srun\n");
  EXPECT_EQ(submit().code, 2);
  EXPECT_EQ(calls(), "");
}

TEST_F(Submit, a_second_chain_is_refused_while_the_first_is_queued) {
  ASSERT_EQ(submit().code, 0);
  queue({"43|43|PENDING|0|RUN/jobs/train.sbatch|", "99|99|RUNNING|0|/elsewhere/train.sbatch|",
         "44|44|RUNNING|0|/elsewhere/eval.sbatch|"});
  const auto again = submit();
  EXPECT_EQ(again.code, 78);
  EXPECT_NE(again.err.find("scancel 43`"), std::string::npos) << again.err;
  EXPECT_NE(test::read(dir / "asked").find(" -j 41,42,43,44,45 "), std::string::npos) << test::read(dir / "asked");
  test::write(dir / "queue", "");
  EXPECT_EQ(submit().code, 0);
}

TEST_F(Submit, status_knows_the_jobs_and_waits_for_them) {
  status();
  EXPECT_FALSE(std::filesystem::exists(dir / "asked")) << "Slurm was asked though there is nothing to ask";
  ASSERT_EQ(submit("--array 3").code, 0);
  std::filesystem::remove(dir / "asked");
  queue({"41_[1-2]|41|PENDING|0|RUN/jobs/extract.sbatch|", "41_0|46|RUNNING|0|RUN/jobs/extract.sbatch|",
         "42|42|PENDING|0|RUN/jobs/finalize.sbatch|", "43|43|RUNNING|0|/elsewhere/train.sbatch|",
         "44|44|CANCELLED|0|RUN/jobs/eval.sbatch|"});
  auto s = status();
  std::string states;
  for (const auto& j : s.at("jobs"))
    states += j.at("phase").get<std::string>() + j.at("job").get<std::string>() + j.at("state").get<std::string>() + " ";
  EXPECT_EQ(states, "extract41RUNNING verify42PENDING train43ENDED eval44ENDED export45ENDED ") << "43 is another cluster's";
  EXPECT_EQ(s.at("next").at("command"), "squeue -j 41,42");
  const auto asked = test::read(dir / "asked");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 1) << "one call for all jobs: " << asked;
  // The job that took another's place, as a job script records it.
  EXPECT_EQ(submit("--replaced 42").code, 2);
  ASSERT_EQ(submit("--replaced 42=60").code, 0);
  queue({"60|60|PENDING|0|RUN/jobs/finalize.sbatch|"});
  s = status();
  EXPECT_EQ(s.at("jobs").at(1),
            (base::Json{{"phase", "verify"}, {"job", "60"}, {"state", "PENDING"}, {"held", nullptr}, {"holder", nullptr}}));
  const auto again = submit();
  EXPECT_EQ(again.code, 78);
  EXPECT_NE(again.err.find("scancel 60`"), std::string::npos) << again.err;
  // Forgotten jobs are errors of squeue when one alone is asked for; any other error tells nothing.
  fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(status().at("jobs").at(1).at("state"), "ENDED");
  fake("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
  EXPECT_TRUE(status().at("jobs").at(1).at("state").is_null());
  EXPECT_NE(status().at("next").at("command").get<std::string>().find("aerie submit"), std::string::npos);
  fake("squeue", "sleep 60");
  EXPECT_TRUE(status().at("jobs").at(1).at("state").is_null()) << "a controller that does not answer";
}

TEST_F(Submit, a_chain_that_breaks_off_is_cancelled) {
  const auto failed = submit("", "FAIL_AT=3");
  EXPECT_EQ(failed.code, 2);
  EXPECT_NE(failed.err.find("sbatch ended 1 for train"), std::string::npos) << failed.err;
  EXPECT_EQ(test::read(dir / "cancelled"), "41 42\n");
  EXPECT_NE(run.ledger().back().at("kind"), "submit");
}

TEST_F(Submit, reset_attempts_is_recorded) {
  ASSERT_EQ(submit("--reset-attempts").code, 0);
  bool seen = false;
  for (const auto& line : run.ledger()) seen = seen || line.value("what", "") == "reset-attempts";
  EXPECT_TRUE(seen);
}

TEST_F(Submit, status_answers_scripts_about_one_phase) {
  EXPECT_EQ(test::aerie("status " + run.name() + " --phase vocab").out, "complete\n");
  EXPECT_EQ(test::aerie("status " + run.name() + " --phase train").out, "not done yet\n");
  EXPECT_EQ(test::aerie("status " + run.name() + " --phase trian").code, 2);
}

}  // namespace
