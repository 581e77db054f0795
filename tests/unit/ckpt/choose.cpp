// SPDX-License-Identifier: Apache-2.0
// Which checkpoint is the latest, what is never looked at, and whether a run ever had one.
#include <fstream>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace ckpt = aerie::ckpt;
namespace fs = std::filesystem;
using aerie::comm::Comm;

namespace {
/// A few bytes are enough here.
void save(const fs::path& root, std::int64_t step) {
  const std::vector<std::byte> bytes(100, static_cast<std::byte>(step));
  ckpt::save(Comm::solo(), aerie::test::make_request(root, step, {{"masters", bytes}}));
}
}  // namespace

TEST(Latest, NothingThere) {
  aerie::test::TempDir dir;
  EXPECT_FALSE(ckpt::latest(dir / "none", true));
  EXPECT_FALSE(ckpt::ever_had_checkpoint(dir / "none"));
  EXPECT_TRUE(ckpt::list_steps(dir / "none").empty());
  EXPECT_NO_THROW(ckpt::remove_leftovers(dir / "none"));
  EXPECT_NO_THROW(ckpt::apply_retention(dir / "none", 3, 0, -1));
}

TEST(Latest, HighestStepByNumberAndNothingElse) {
  aerie::test::TempDir dir;
  for (const std::int64_t step : {9, 100, 99999999, 100000000}) save(dir.path(), step);  // nine digits sort before eight as text
  for (const char* other : {"step-99999999.tmp.3", "step-100000001.old", "step-100000002.bad", "step-100000003.bad.2", "step-",
                            "step-abc", "step-7", "step-000000100000004", "latest"})
    fs::copy(dir / "step-100000000", dir / other, fs::copy_options::recursive);
  std::ofstream(dir / "step-200000000") << "a file";
  EXPECT_EQ(ckpt::list_steps(dir.path()), (std::vector<std::int64_t>{9, 100, 99999999, 100000000}));
  EXPECT_EQ(ckpt::latest(dir.path(), true)->step, 100000000);
  EXPECT_TRUE(fs::exists(dir / "step-7"));
}

TEST(Latest, StepsToAvoidComeLast) {
  aerie::test::TempDir dir;
  for (const std::int64_t step : {1, 2, 3}) save(dir.path(), step);
  EXPECT_EQ(ckpt::latest(dir.path(), true, {}, {3})->step, 2);
  EXPECT_EQ(ckpt::latest(dir.path(), true, {}, {2, 3})->step, 1);
  EXPECT_EQ(ckpt::latest(dir.path(), true, {}, {1, 2, 3})->step, 3);  // nothing else is there
  EXPECT_EQ(ckpt::list_steps(dir.path()).size(), 3U);                 // and nothing was renamed
}

TEST(Latest, HalfRenamedDirectoriesAreNotRead) {
  aerie::test::TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  fs::rename(dir / "step-00000002", dir / "step-00000002.tmp.1");  // whole, but never published
  EXPECT_EQ(ckpt::latest(dir.path(), true)->step, 1);
  fs::rename(dir / "step-00000001", dir / "step-00000003");  // published under a wrong name
  std::string log;
  EXPECT_FALSE(ckpt::latest(dir.path(), true, [&](const std::string& t) { log += t; }));
  EXPECT_NE(log.find("is of step 1"), std::string::npos) << log;
  EXPECT_TRUE(fs::exists(dir / "step-00000003.bad"));
}

TEST(Latest, SecondDamageOfAStepGetsANameOfItsOwn) {
  aerie::test::TempDir dir;
  for (int i = 0; i < 3; ++i) {
    save(dir.path(), 5);
    fs::remove(dir / "step-00000005" / "MANIFEST.json");
    EXPECT_FALSE(ckpt::latest(dir.path(), true));
  }
  EXPECT_EQ(aerie::test::names_in(dir.path()),
            (std::set<std::string>{"step-00000005.bad", "step-00000005.bad.2", "step-00000005.bad.3"}));
}

TEST(Latest, ReadErrorIsNoDamage) {
  aerie::test::TempDir dir;
  save(dir.path(), 1);
  save(dir.path(), 2);
  fs::remove(dir / "step-00000002" / "MANIFEST.json");
  fs::create_directory(dir / "step-00000002" / "MANIFEST.json");  // reading it fails with EISDIR, like any other read error
  EXPECT_THROW(ckpt::latest(dir.path(), true), base::IoError);
  EXPECT_TRUE(fs::exists(dir / "step-00000002"));
}

TEST(EverHad, PublishedBadAndOldCountTemporaryDoesNot) {
  aerie::test::TempDir dir;
  fs::create_directory(dir / "step-00000001.tmp.1");
  fs::create_directory(dir / "other");
  EXPECT_FALSE(ckpt::ever_had_checkpoint(dir.path()));
  for (const char* name : {"step-00000001", "step-00000001.bad", "step-00000001.bad.2", "step-00000001.old"}) {
    fs::create_directory(dir / name);
    EXPECT_TRUE(ckpt::ever_had_checkpoint(dir.path())) << name;
    fs::remove(dir / name);
  }
}

TEST(Read, AsksForWhatIsThere) {
  aerie::test::TempDir dir;
  save(dir.path(), 1);
  const auto c = ckpt::open(dir / "step-00000001");
  std::vector<std::byte> right(100), wrong(99);
  EXPECT_THROW(ckpt::read_vector(c, "other"), base::RefusedError);
  EXPECT_THROW(ckpt::read_chunk(c, "masters", 0, wrong), base::Bug);
  EXPECT_THROW(ckpt::read_chunk(c, "masters", 1, right), base::Bug);
  ckpt::read_chunk(c, "masters", 0, right);
  EXPECT_EQ(right, std::vector<std::byte>(100, std::byte{1}));
  EXPECT_EQ(c.manifest.at("identity").at("store_uuid"), "u");
}
