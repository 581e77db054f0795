// SPDX-License-Identifier: Apache-2.0
// Kills a saving program at every numbered point and checks from outside: the newest checkpoint that verifies is the previous one
// or the new one, and the next save clears up. A run that was not really killed fails the test.
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/file.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace ckpt = aerie::ckpt;
namespace fs = std::filesystem;

namespace {
struct Trial {
  aerie::test::TempDir dir;
  fs::path root = dir / "checkpoints";

  /// Shell status of saving `step`: exit code, or 128 + signal.
  int save(int step, const std::string& mode, const std::string& fault = "", int ranks = 2) const {
    const std::string program = std::string(CRASH_PROGRAM) + " " + root.string() + " " + std::to_string(step) + " " + mode + " " +
                                (dir / "code").string();
    const std::string launcher = mode == "mpi" ? std::string(MPIEXEC_COMMAND) + " -q -n " + std::to_string(ranks) + " " : "";
    const std::string environment =
        "AERIE_FAULT=" + fault + " OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none ";
    const int status = std::system((environment + launcher + program + " 2>/dev/null; exit $?").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// The newest that opens also verifies and holds the bytes of its step; returns that step, -1 when there is none.
  std::int64_t newest_whole() const {
    const auto found = ckpt::latest(root, false);
    if (!found) return -1;
    EXPECT_EQ(ckpt::verify(found->path), std::vector<std::string>{});
    for (const auto& [name, bytes] : aerie::test::make_vectors(static_cast<std::uint64_t>(found->step)))
      EXPECT_EQ(ckpt::vector_sha256(*found, name), aerie::test::sha256_of(bytes)) << name;
    return found->step;
  }
  bool all_published_are_whole() const {
    for (const auto step : ckpt::list_steps(root)) {
      char name[32];
      std::snprintf(name, sizeof name, "step-%08d", static_cast<int>(step));
      if (!ckpt::verify(root / name).empty()) return false;
    }
    return true;
  }
  void expect_clears_up() const {
    ckpt::remove_leftovers(root);
    for (const auto& name : aerie::test::names_in(root)) EXPECT_EQ(name.find('.'), std::string::npos) << name << " is left over";
    EXPECT_EQ(save(2, "solo"), 0);
    EXPECT_EQ(newest_whole(), 2);
  }
};

struct Point {
  const char* name;
  std::int64_t newest;  // after a kill there, with step 1 published and step 2 being saved
};
constexpr Point points[] = {{"ckpt.after_tmp_dir", 1}, {"ckpt.after_data", 1},     {"ckpt.after_data_fsync", 1},
                            {"ckpt.after_agree", 1},   {"ckpt.after_manifest", 1}, {"ckpt.before_rename", 1},
                            {"ckpt.after_rename", 2}};
}  // namespace

TEST(CheckpointCrash, KilledAtEveryPointAlone) {
  for (const auto& point : points) {
    const Trial trial;
    ASSERT_EQ(trial.save(1, "solo"), 0);
    ASSERT_EQ(trial.save(2, "solo", std::string(point.name) + ":0:1:kill"), 137) << point.name << ": not killed";
    EXPECT_EQ(trial.newest_whole(), point.newest) << point.name;
    EXPECT_TRUE(trial.all_published_are_whole()) << point.name;
    trial.expect_clears_up();
  }
}

TEST(CheckpointCrash, KilledAtEveryWriteAndSync) {
  int kills = 0;
  for (const std::string call : {"file.pwrite", "file.fsync"})
    for (int n = 1; n < 12; ++n) {
      const Trial trial;
      ASSERT_EQ(trial.save(1, "solo"), 0);
      const int code = trial.save(2, "solo", call + ":0:" + std::to_string(n) + ":kill");
      if (code == 0) break;  // fewer such calls than n
      ASSERT_EQ(code, 137);
      ++kills;
      const auto newest = trial.newest_whole();
      EXPECT_TRUE(newest == 1 || newest == 2) << newest;
      EXPECT_TRUE(trial.all_published_are_whole());
      trial.expect_clears_up();
    }
  EXPECT_EQ(kills, 5 + 5);  // five chunks; data, directory, manifest, directory, parent
}

TEST(CheckpointCrashTwoRanks, KilledAtEveryPointOfEach) {
  for (const auto& point : points)
    for (const int rank : {0, 1}) {
      const std::set<std::string> on_all_ranks{"ckpt.after_data", "ckpt.after_data_fsync", "ckpt.after_agree"};
      if (rank == 1 && !on_all_ranks.contains(point.name)) continue;
      const Trial trial;
      ASSERT_EQ(trial.save(1, "solo"), 0);
      ASSERT_EQ(trial.save(2, "mpi", std::string(point.name) + ":" + std::to_string(rank) + ":1:kill"), 137)
          << point.name << " rank " << rank;
      EXPECT_EQ(trial.newest_whole(), point.newest) << point.name << " rank " << rank;
      trial.expect_clears_up();
    }
}

TEST(CheckpointCrashTwoRanks, ErrorOnOneIsExit74OnBoth) {
  for (const std::string fault :
       {"ckpt.after_tmp_dir:0:1:throw", "ckpt.after_data:1:1:throw", "ckpt.after_agree:1:1:throw", "file.pwrite:0:2:enospc",
        "file.pwrite:1:1:eio", "file.fsync:1:1:eio", "file.fsync:0:2:eio", "ckpt.after_manifest:0:1:throw"}) {
    const Trial trial;
    ASSERT_EQ(trial.save(1, "solo"), 0);
    ASSERT_EQ(trial.save(2, "mpi", fault), 0) << fault;
    for (const char* rank : {"code.0", "code.1"}) EXPECT_EQ(base::read_text(trial.dir / rank), "74") << fault << " " << rank;
    EXPECT_EQ(aerie::test::names_in(trial.root), std::set<std::string>{"step-00000001"}) << fault;
    EXPECT_EQ(trial.newest_whole(), 1) << fault;
  }
}

TEST(CheckpointCrash, KilledWhileDeletingKeepsTwo) {
  const Trial trial;
  for (const int step : {1, 2}) ASSERT_EQ(trial.save(step, "solo"), 0);
  ASSERT_EQ(trial.save(3, "solo", "ckpt.retention:0:1:kill"), 137);
  EXPECT_EQ(ckpt::list_steps(trial.root), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(trial.all_published_are_whole());
  EXPECT_TRUE(fs::exists(trial.root / "step-00000001.old"));
  ckpt::remove_leftovers(trial.root);
  EXPECT_EQ(aerie::test::names_in(trial.root), (std::set<std::string>{"step-00000002", "step-00000003"}));
}

TEST(CheckpointCrash, ControlWithoutTheProtocolIsFound) {
  const Trial trial;
  ASSERT_EQ(trial.save(1, "solo"), 0);
  ASSERT_EQ(trial.save(2, "unprotected", "control.between:0:1:kill"), 137);
  EXPECT_FALSE(trial.all_published_are_whole()) << "the checks above would not notice a half-written checkpoint";
}
