// SPDX-License-Identifier: Apache-2.0
// Two jobs on one store at the same time, with nothing but the parts' leases between them.
#include <csignal>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "harness.hpp"
#include "temp_dir.hpp"

namespace aerie::crash {
namespace {

std::map<std::int64_t, std::vector<std::string>> acknowledged_by(const fs::path& logs) {
  std::map<std::int64_t, std::vector<std::string>> out;
  for (const auto& e : fs::directory_iterator(logs)) {
    std::ifstream in(e.path());
    for (std::string line; std::getline(in, line) && !in.eof();) out[std::stoll(line)].push_back(e.path().filename());
  }
  return out;
}

TEST(TwoJobs, TheSecondLeavesLeasedPartsAloneAndAKilledHoldersLockIsNoObstacle) {
  const test::TempDir dir;
  WriterSetup setup{dir / "store", dir / "logs"};
  fs::create_directory(setup.logs);
  create(setup.store);
  const auto store = io::Store::open(setup.store);
  ASSERT_GE(store.parts().size(), 3U);

  setup.fault = "file.fdatasync:*:6:stall";  // in the middle of parts 0 and 1, holding both
  const auto first = start_writer(setup, {0, 1}, "first");
  ASSERT_TRUE(wait_for_acknowledgements(setup.logs, 6, {first}));
  setup.fault = "";
  EXPECT_EQ(io::leased_parts(store), (std::vector<std::int64_t>{0, 1}));
  try {
    const std::vector<std::int64_t> both{0};
    io::StoreWriter(store, both, {});
    ADD_FAILURE() << "a leased part was given to a second writer";
  } catch (const base::RefusedError& e) {
    EXPECT_NE(std::string(e.what()).find("pid " + std::to_string(first)), std::string::npos) << e.what();
  }
  const auto second_parts = io::assign(store, 1, io::leased_parts(store)).at(0).parts;
  EXPECT_EQ(std::count_if(second_parts.begin(), second_parts.end(), [](auto p) { return p < 2; }), 0);
  EXPECT_EQ(wait_for(start_writer(setup, second_parts, "second")), 0);
  EXPECT_TRUE(any_running({first}));

  kill_and_reap({first});
  EXPECT_TRUE(io::leased_parts(store).empty());
  EXPECT_NE(base::read_text(setup.store / "locks" / "part-00000.lock").find("pid " + std::to_string(first)), std::string::npos)
      << "the stale lock file should still be there";
  EXPECT_EQ(wait_for(start_writer(setup, {0, 1}, "third")), 0);
  for (const auto& [sample, by] : acknowledged_by(setup.logs))
    EXPECT_EQ(by.size(), 1U) << "sample " << sample << " was written twice";
  const auto d = inspect(setup.store, setup.logs);
  EXPECT_FALSE(d.any());
  EXPECT_EQ(io::Store::open(setup.store).counts().done, samples - 1);
}

TEST(TwoJobs, RacingForPartsNoSampleIsWrittenByBoth) {
  Random random(std::random_device{}());
  for (int trial = 0; trial < 5; ++trial) {
    const test::TempDir dir;
    const WriterSetup setup{dir / "store", dir / "logs"};
    fs::create_directory(setup.logs);
    create(setup.store);
    const std::vector<pid_t> jobs{start_job(setup, "a"), start_job(setup, "b"), start_job(setup, "c")};
    if (trial % 2 == 1) {  // one of them dies on the way
      wait_for_acknowledgements(setup.logs, random.pick(1, 50), jobs);
      ::kill(jobs[0], SIGKILL);
    }
    const int first = wait_for(jobs[0]);
    EXPECT_TRUE(first == 0 || first == 128 + SIGKILL) << first;
    EXPECT_EQ(wait_for(jobs[1]), 0);
    EXPECT_EQ(wait_for(jobs[2]), 0);
    const auto by_sample = acknowledged_by(setup.logs);
    for (const auto& [sample, by] : by_sample) EXPECT_EQ(by.size(), 1U) << "sample " << sample << " was written twice";
    if (first == 0) {
      EXPECT_EQ(by_sample.size(), static_cast<std::size_t>(samples - 1));
    }
    EXPECT_FALSE(inspect(setup.store, setup.logs).any());
    EXPECT_EQ(io::Store::open(setup.store).counts().done, samples - 1);
  }
}

}  // namespace
}  // namespace aerie::crash
