// SPDX-License-Identifier: Apache-2.0
// What the status says of a run's jobs in Slurm's queue: where they are, who holds them, and what to do about it.
#include <aerie/report/status.hpp>

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <aerie/base/host.hpp>
#include <aerie/report/ledger.hpp>
#include "temp_dir.hpp"

namespace report = aerie::report;
using aerie::base::Json;
using report::Ledger;
using report::Phase;
using report::PhaseState;

TEST(Status, JobsOfTheRunAndTheWaitForThem) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  const auto jobs = [](const std::string& a, const std::string& b) {
    return Json{
        {"jobs", {{{"phase", "extract"}, {"job", a}, {"script", "x"}}, {{"phase", "train"}, {"job", b}, {"script", "t"}}}}};
  };
  ledger.submitted(jobs("11", "12"));
  ledger.submitted(jobs("41", "42"));
  ledger.submitted({{"job", "50"}, {"replaces", "42"}});
  ledger.submitted({{"job", "51"}, {"replaces", "41_3"}});  // a task's stand-in; the array goes on
  ledger.submitted({{"job", "52"}, {"replaces", "99"}});    // of nobody's
  std::ofstream(run / "stop") << "";
  report::Outside outside;
  auto status = report::build_status(run.path(), nullptr, nullptr, outside);
  EXPECT_EQ(status.at("jobs"),
            (Json{{{"phase", "extract"}, {"job", "41"}, {"state", nullptr}, {"held", nullptr}, {"holder", nullptr}},
                  {{"phase", "extract"}, {"job", "51"}, {"state", nullptr}, {"held", nullptr}, {"holder", nullptr}},
                  {{"phase", "train"}, {"job", "50"}, {"state", nullptr}, {"held", nullptr}, {"holder", nullptr}}}));
  outside.queue = {{"41_[2-3]", {"PENDING", 0, "41"}},
                   {"41_1", {"RUNNING", 0, "43"}},
                   {"50", {"PENDING", 0, "50"}},
                   {"411", {"RUNNING", 0, "411"}}};
  status = report::build_status(run.path(), nullptr, nullptr, outside);
  EXPECT_EQ(status.at("jobs")[0].at("state"), "RUNNING");
  EXPECT_EQ(status.at("jobs")[1].at("state"), "ENDED");
  EXPECT_EQ(status.at("jobs")[2].at("state"), "PENDING");
  EXPECT_EQ(status.at("next").at("command"), "squeue -j 41,50");
  EXPECT_NE(report::format_status(status).find("jobs       extract 41 RUNNING, train 50 PENDING"), std::string::npos);
  outside.queue.emplace();
  status = report::build_status(run.path(), nullptr, nullptr, outside);
  EXPECT_EQ(status.at("next").at("command").get<std::string>().substr(0, 3), "rm ")
      << "the queue is empty: the stop file holds it";
}

TEST(Status, WhoHoldsAJobIsTold) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.submitted({{"jobs", {{{"phase", "extract"}, {"job", "41"}}, {{"phase", "train"}, {"job", "42"}}}}});
  const auto self = aerie::base::this_process();
  const auto hold = [&](const Json& jobs, const std::string& host, const std::string& boot, std::int64_t start_ticks,
                        std::int64_t pid_namespace) {
    ledger.evidence("jobs-held", {{"jobs", jobs},
                                  {"process",
                                   {{"host", host},
                                    {"boot_id", boot},
                                    {"pid_namespace", pid_namespace},
                                    {"pid", self.pid},
                                    {"start_ticks", start_ticks}}}});
  };
  report::Outside outside;
  const auto held = [&](const std::string& first, const std::string& second) {
    outside.queue = {
        {"41_0", {"PENDING", 0, "41", ""}}, {"41_3", {"PENDING", 0, "41", first}}, {"42", {"PENDING", 0, "42", second}}};
    const auto status = report::build_status(run.path(), nullptr, nullptr, outside);
    const auto jobs = status.at("jobs");
    return Json{jobs[0].at("held"), jobs[1].at("held"), status.at("next").at("command")};
  };
  const auto recover = fmt::format("aerie recover {} --submit", run.path().string());
  EXPECT_EQ(held("", ""), (Json{nullptr, nullptr, "squeue -j 41,42"}));
  EXPECT_EQ(held("JobHeldUser", "JobHeldAdmin"), (Json{"person", "person", "scontrol release 41"}));
  hold({"41"}, self.host, "before", self.start_ticks, self.pid_namespace);  // this host was started again since
  EXPECT_EQ(held("JobHeldUser", ""), (Json{"ended-recovery", nullptr, recover}));
  EXPECT_EQ(held("", "JobHeldUser"), (Json{nullptr, "person", "squeue -j 41,42"})) << "the first goes on";
  hold({"41_3", "42"}, "elsewhere", "", self.start_ticks, self.pid_namespace);
  EXPECT_EQ(held("JobHeldAdmin", "JobHeldUser"), (Json{"recovery", "recovery", "squeue -j 41,42"}));
  ledger.evidence("jobs-let-go", {{"jobs", {"41_3"}}});  // and the array as a whole is no longer held
  EXPECT_EQ(held("JobHeldUser", "JobHeldUser"), (Json{"person", "recovery", "scontrol release 41"}));
  hold({"41"}, self.host, self.boot_id, self.start_ticks, self.pid_namespace);
  EXPECT_EQ(held("JobHeldUser", ""), (Json{"recovery", nullptr, "squeue -j 41,42"}));
  hold({"41"}, self.host, self.boot_id, self.start_ticks + 1, self.pid_namespace);  // its pid is somebody else's
  EXPECT_EQ(held("JobHeldUser", ""), (Json{"ended-recovery", nullptr, recover}));
  hold({"41"}, self.host, self.boot_id, self.start_ticks + 1, self.pid_namespace + 1);  // in a container: it cannot be seen
  EXPECT_EQ(held("JobHeldUser", ""), (Json{"recovery", nullptr, "squeue -j 41,42"}));
  ledger.evidence("jobs-held", {{"jobs", 5}});
  EXPECT_NE(report::build_status(run.path(), nullptr, nullptr, outside).at("problems").dump().find("ledger: record"),
            std::string::npos);
}
