// SPDX-License-Identifier: Apache-2.0
// The wrapper of the MPI programs, under mpirun at 1, 2 and 4 ranks: one line, one code, one record.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include <aerie/base/host.hpp>
#include <aerie/config/config.hpp>

#include "fixture.hpp"

namespace {
using namespace aerie;

std::vector<std::string> error_lines(const std::string& err) {
  std::vector<std::string> out;
  for (std::size_t at = err.find("error: "); at != std::string::npos; at = err.find("error: ", at + 1))
    if (at == 0 || err[at - 1] == '\n') out.push_back(err.substr(at, err.find('\n', at) - at));
  return out;
}

class Wrapper : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    ::setenv("AERIE_ABORT_AFTER", "1", 1);
  }
  int ranks() const { return GetParam(); }
  test::Ended start(const std::string& arguments) {
    return test::shell(fmt::format("{} {} {} {}", MPIEXEC, ranks(), WRAPPED, arguments));
  }
  test::Ended act(const std::string& what) { return start("--run " + run.name() + " --act " + what); }
  std::string place(int rank) const { return fmt::format("rank {} {}: ", rank, base::host_name()); }
  test::TempDir dir;
  test::Run run{dir};
};

TEST_P(Wrapper, records_configuration_and_attempt) {
  const auto e = act("nothing --train.steps 5");
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out, "attempt 1 steps 5\n");
  auto c = config::load(run.path());
  c.train.steps = 5;
  const auto resolved = base::read_json(run.path() / "resolved.json");
  EXPECT_EQ(resolved.at("hash"), config::config_hash(c));
  EXPECT_EQ(resolved.at("config"), config::to_json(c));
  const auto lines = run.ledger();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("event"), "begin");
  EXPECT_EQ(lines[0].at("program"), "aerie-train");
  const auto& details = lines[0].at("details");
  EXPECT_EQ(details.at("ranks"), ranks());
  EXPECT_EQ(details.at("hosts").size(), static_cast<std::size_t>(ranks()));
  // Who each rank was: what status and recover look for afterwards. No two ranks are one process.
  std::set<std::int64_t> pids;
  ASSERT_EQ(details.at("processes").size(), static_cast<std::size_t>(ranks()));
  for (int r = 0; r < ranks(); ++r) {
    const auto& p = details["processes"][static_cast<std::size_t>(r)];
    EXPECT_EQ(p.at("rank"), r);
    EXPECT_EQ(p.at("host"), base::host_name());
    EXPECT_EQ(p.at("pid_namespace"), base::own_pid_namespace());
    EXPECT_GT(p.at("start_ticks").get<std::int64_t>(), 0);
    pids.insert(p.at("pid").get<std::int64_t>());
  }
  EXPECT_EQ(pids.size(), static_cast<std::size_t>(ranks()));
  EXPECT_EQ(details["processes"][0].at("pid"), lines[0].at("process").at("pid"));
  EXPECT_EQ(details.at("boot_ids").size(), 1U);
  EXPECT_EQ(details.at("config_hash"), config::config_hash(c));
  EXPECT_TRUE(details.at("versions").contains("libraries"));
  EXPECT_EQ(lines[2].at("event"), "end");
  EXPECT_EQ(lines[2].at("exit_code"), 0);
  EXPECT_EQ(lines[2].at("details").at("progress"), true);
  EXPECT_EQ(act("nothing").out.rfind("attempt 2", 0), 0U);
}

TEST_P(Wrapper, an_error_of_all_is_one_line) {
  const auto e = act("throw");
  EXPECT_EQ(e.code, 65);
  EXPECT_EQ(error_lines(e.err), std::vector<std::string>{"error: sample 7 is bad very (mend it)"});
  const auto lines = run.ledger();
  EXPECT_EQ(lines.back().at("exit_code"), 65);
  EXPECT_EQ(lines.at(lines.size() - 2).at("state"), "failed");
  EXPECT_EQ(act("bug").code, 70);
}

TEST_P(Wrapper, an_error_of_one_rank_names_it) {
  const int last = ranks() - 1;
  const auto e = act(fmt::format("throw --on {}", last));
  EXPECT_EQ(e.code, 65);
  const auto where = ranks() == 1 ? std::string() : place(last);
  EXPECT_EQ(error_lines(e.err), std::vector<std::string>{"error: " + where + "sample 7 is bad very (mend it)"});
  EXPECT_EQ(act(fmt::format("code --on {}", last)).code, 3);
}

TEST_P(Wrapper, an_agreed_error_is_not_prefixed_twice) {
  const int last = ranks() - 1;
  const auto e = act(fmt::format("agree --on {}", last));
  EXPECT_EQ(e.code, 66);
  const auto text = ranks() == 1 ? std::string("part 3 is gone") : "open store: " + place(last) + "part 3 is gone";
  EXPECT_EQ(error_lines(e.err), std::vector<std::string>{"error: " + text + " (look for it)"});
}

TEST_P(Wrapper, a_rank_that_leaves_a_collective_ends_all) {
  const auto e = act("desert --on 0");
  EXPECT_EQ(e.code, 74);
  EXPECT_EQ(error_lines(e.err).size(), 1U) << e.err;
  EXPECT_EQ(run.ledger().back().at("exit_code"), 74);
}

TEST_P(Wrapper, stop_is_75_and_no_error) {
  const auto e = act("stop");
  EXPECT_EQ(e.code, 75);
  EXPECT_TRUE(error_lines(e.err).empty()) << e.err;
  const auto lines = run.ledger();
  EXPECT_EQ(lines.back().at("exit_code"), 75);
  EXPECT_EQ(lines.back().at("reason"), "signal USR2");
  EXPECT_EQ(lines.at(lines.size() - 2).at("state"), "interrupted");
  test::write(run.path() / "stop", "");
  EXPECT_EQ(act("nothing").code, 75);  // before anything is done
  EXPECT_EQ(run.ledger().size(), lines.size());
}

TEST_P(Wrapper, wrong_command_lines_say_so_once) {
  EXPECT_EQ(start("--act nothing").code, 2);
  const auto e = start("--run " + run.name() + " --train.stepz 4");
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(error_lines(e.err), std::vector<std::string>{"error: unknown flag '--train.stepz' (did you mean '--train.steps'?)"});
  EXPECT_EQ(start("--run " + (dir / "none").string()).code, 66);
  EXPECT_EQ(act("nothing --train.keep 1").code, 2);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "ledger.jsonl"));
}

TEST_P(Wrapper, print_config_check_help_version) {
  auto c = config::load(run.path());
  c.train.lr = 0.25;
  EXPECT_EQ(act("nothing --print-config --train.lr 0.25").out, config::commented_toml(c));
  EXPECT_EQ(act("nothing --check").code, 0);
  EXPECT_EQ(act("nothing --check --slurm.site /nothing/there").code, 66);
  EXPECT_NE(start("--help").out.find("--train.steps"), std::string::npos);
  EXPECT_TRUE(start("--version --json").json().at("libraries").contains("mpi"));
  EXPECT_FALSE(std::filesystem::exists(run.path() / "ledger.jsonl"));
}

TEST_P(Wrapper, the_lock_is_refused_with_its_holder) {
  const auto e = test::shell(
      fmt::format("echo 'aerie-train, host gpu07, pid 4' > {0}/run.lock; "
                  "python3 -c \"import fcntl,subprocess,sys; f=open('{0}/run.lock','r+'); fcntl.lockf(f,fcntl.LOCK_EX); "
                  "sys.exit(subprocess.call('{1} {2} {3} --run {0} '+sys.argv[1],shell=True))\" ",
                  run.name(), MPIEXEC, ranks(), WRAPPED) +
      "''");
  EXPECT_EQ(e.code, 78);
  ASSERT_EQ(error_lines(e.err).size(), 1U) << e.err;
  EXPECT_NE(error_lines(e.err)[0].find("is in use by aerie-train, host gpu07, pid 4"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Wrapper, testing::Values(1, 2, 4));

}  // namespace
