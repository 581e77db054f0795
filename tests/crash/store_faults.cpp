// SPDX-License-Identifier: Apache-2.0
// The store at each of its fault points: killed there, or with one call that fails or moves fewer bytes than asked.
// tests/crash/points.py holds the names below against the sources.
#include <csignal>

#include <gtest/gtest.h>

#include <aerie/base/file.hpp>

#include "harness.hpp"
#include "temp_dir.hpp"

namespace aerie::crash {
namespace {

struct Lab {
  test::TempDir dir;
  WriterSetup setup{dir / "store", dir / "logs", "", false, false, true};
  Lab() { fs::create_directory(setup.logs); }
  int create(const std::string& fault = "") const { return wait_for(start_creator(setup.store, fault)); }
  /// One process for all parts.
  int write(const std::string& fault, const std::string& name) {
    setup.fault = fault;
    return wait_for(start_writers(setup, 1, name).at(0));
  }
  void expect_no_damage(const std::string& where) const {
    const auto d = inspect(setup.store, setup.logs);
    EXPECT_EQ(d.lost, 0) << where;
    EXPECT_EQ(d.wrong, 0) << where;
    EXPECT_EQ(d.findings, 0) << where;
  }
  void expect_resumes(const std::string& where) {
    EXPECT_EQ(write("", "resumed"), 0) << where;
    expect_no_damage(where);
    EXPECT_EQ(io::Store::open(setup.store).counts().done, samples - 1) << where;
  }
};

TEST(StoreFaults, KilledAtEveryPointOfWriting) {
  for (const std::string point : {"store.sync_before_trust", "store.after_data_write", "store.data_sync", "store.after_data_sync",
                                  "store.after_state_write", "file.pwrite", "file.pread", "file.fdatasync"})
    for (const auto* count : {"1", "3", "20"}) {
      const auto fault = point + ":*:" + count + ":kill";
      const bool at_start_only = point == "store.sync_before_trust" || point == "file.pread";
      if (at_start_only && count == std::string("20")) continue;  // not that often
      Lab lab;
      ASSERT_EQ(lab.create(), 0);
      ASSERT_EQ(lab.write(fault, "killed"), 128 + SIGKILL) << fault;
      lab.expect_no_damage(fault);
      lab.expect_resumes(fault);
    }
}

TEST(StoreFaults, KilledAtEveryPointOfCreation) {
  for (const std::string point :
       {"store.part_created", "store.reserve", "store.before_manifest", "file.fsync", "file.write", "file.rename"})
    for (const auto* count : {"1", "2"}) {
      const auto fault = point + ":*:" + count + ":kill";
      Lab lab;
      const int code = lab.create(fault);
      const bool once = point == "store.before_manifest" || point == "file.write" || point == "file.rename";
      ASSERT_EQ(code, count[0] == '2' && once ? 0 : 128 + SIGKILL) << fault;
      EXPECT_EQ(io::Store::exists(lab.setup.store), code == 0) << fault;
      ASSERT_EQ(lab.create(), 0) << fault;
      lab.expect_resumes(fault);
    }
}

TEST(StoreFaults, ErrorsOfCreationLeaveNothingThatBlocksTheNext) {
  for (const std::string fault :
       {"store.reserve:*:1:enospc", "store.reserve:*:3:enospc", "store.part_created:*:2:eio", "file.fsync:*:1:eio",
        "store.before_manifest:*:1:eio", "file.write:*:1:enospc", "file.rename:*:1:eio"}) {
    Lab lab;
    EXPECT_EQ(lab.create(fault), 74) << fault;
    EXPECT_FALSE(io::Store::exists(lab.setup.store)) << fault;
    for (const auto& e : fs::recursive_directory_iterator(lab.setup.store))
      EXPECT_EQ(e.path().string().find(".tmp"), std::string::npos) << fault << ": left behind: " << e.path();
    ASSERT_EQ(lab.create(), 0) << fault;
    lab.expect_resumes(fault);
  }
}

TEST(StoreFaults, ShortAndInterruptedTransfersGiveTheSameBytes) {
  Lab plain;
  ASSERT_EQ(plain.create(), 0);
  Lab faulty;
  fs::copy(plain.setup.store, faulty.setup.store, fs::copy_options::recursive);
  ASSERT_EQ(plain.write("", "all"), 0);
  std::string faults;
  for (const std::string call : {"file.pwrite", "file.pread"})
    for (const std::string action : {"random-3-1:one", "random-3-2:half", "random-4-3:eintr"})
      faults += call + ":*:" + action + ",";
  ASSERT_EQ(faulty.write(faults + "file.pwrite:*:random-5-4:zero", "all"), 0);
  const auto store = io::Store::open(plain.setup.store);
  for (const auto& part : store.parts()) {
    const auto expected = base::read_text(plain.setup.store / part.file);
    EXPECT_TRUE(base::read_text(faulty.setup.store / part.file) == expected) << part.file;
  }
  faulty.expect_no_damage(faults);
}

TEST(StoreFaults, AnErrorOfOneWriteOrSyncEndsTheWriter) {
  for (const std::string fault :
       {"file.pwrite:*:1:enospc", "file.pwrite:*:50:enospc", "file.pwrite:*:50:eio", "file.pwrite:*:9+:zero",
        "store.sync_before_trust:*:1:eio", "store.after_data_write:*:2:eio", "store.after_state_write:*:2:eio"}) {
    Lab lab;
    ASSERT_EQ(lab.create(), 0);
    EXPECT_EQ(lab.write(fault, "failed"), 74) << fault;
    lab.expect_no_damage(fault);
    lab.expect_resumes(fault);
  }
}

/// In one part, groups of three: the n-th fdatasync covers the data of group n and the records of group n-1. When it fails
/// nothing after group n-2 may be reported, in this process or by a later call that works.
TEST(StoreFaults, NothingIsReportedAfterAFailedSync) {
  for (const std::string action : {"eio", "enospc", "eintr"})
    for (const int n : {1, 2, 5}) {
      const auto fault = "file.fdatasync:*:" + std::to_string(n) + ":" + action;
      Lab lab;
      ASSERT_EQ(lab.create(), 0);
      lab.setup.fault = fault;
      EXPECT_EQ(wait_for(start_writer(lab.setup, {1}, "failed")), 74) << fault;
      EXPECT_LE(acknowledgements(lab.setup.logs), 3 * std::max(0, n - 2)) << fault;
      EXPECT_LE(io::Store::open(lab.setup.store).counts().done, 3 * (n - 1)) << fault << ": records over data that may be lost";
      lab.expect_no_damage(fault);
      lab.expect_resumes(fault);
    }
}

TEST(StoreFaults, ReadErrorsAreNoDamage) {
  Lab lab;
  ASSERT_EQ(lab.create(), 0);
  ASSERT_EQ(lab.write("", "all"), 0);
  EXPECT_EQ(lab.write("file.pread:*:2:eio", "again"), 74);
  lab.expect_no_damage("after a read error");
}

}  // namespace
}  // namespace aerie::crash
