// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay.
#include <fstream>

#include <gtest/gtest.h>

#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"
#include "temp_dir.hpp"

namespace ckpt = aerie::ckpt;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {
struct Saved : aerie::test::TempDir {
  explicit Saved(const Steps& steps) {
    for (const auto step : steps) {
      const std::vector<std::byte> bytes(10, static_cast<std::byte>(step));
      ckpt::save(aerie::comm::Comm::solo(), aerie::test::make_request(path(), step, {{"masters", bytes}}));
    }
  }
  fs::path of(std::int64_t step) const { return path() / ("step-0000000" + std::to_string(step)); }
  Steps after(std::int64_t keep, std::int64_t keep_every, std::int64_t loaded) const {
    ckpt::apply_retention(path(), keep, keep_every, loaded);
    return ckpt::list_steps(path());
  }
};
}  // namespace

TEST(Retention, KeepsTheNewest) {
  const Saved run({1, 2, 3, 4, 5});
  EXPECT_EQ(run.after(5, 0, -1), (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(run.after(3, 0, -1), (Steps{3, 4, 5}));
  EXPECT_EQ(aerie::test::names_in(run.path()).size(), 3U);  // nothing left beside them
}
TEST(Retention, NeverFewerThanTwo) {
  EXPECT_EQ(Saved({1, 2, 3, 4}).after(1, 0, -1), (Steps{3, 4}));
  EXPECT_EQ(Saved({1, 2, 3, 4}).after(0, 0, -1), (Steps{3, 4}));
  EXPECT_EQ(Saved({1, 2, 3, 4}).after(-7, 0, -1), (Steps{3, 4}));
  EXPECT_EQ(Saved({1}).after(2, 0, -1), (Steps{1}));
}
TEST(Retention, KeepsEveryMth) { EXPECT_EQ(Saved({1, 2, 3, 4, 5, 6, 7}).after(2, 3, -1), (Steps{3, 6, 7})); }
TEST(Retention, KeepsTheOneLoaded) {
  const Saved run({1, 2, 3, 4, 5});
  EXPECT_EQ(run.after(2, 0, 2), (Steps{2, 4, 5}));
  EXPECT_EQ(run.after(2, 0, -1), (Steps{4, 5}));
}
TEST(Retention, DamagedOnesNeitherCountNorGo) {
  const Saved run({1, 2, 3, 4, 5});
  fs::remove(run.of(5) / "chunk-0000.bin");
  fs::resize_file(run.of(4) / "MANIFEST.json", 10);
  EXPECT_EQ(run.after(2, 0, -1), (Steps{2, 3, 4, 5}));  // 2 and 3 are the newest two that open
}
TEST(Retention, RemovesLeftovers) {
  const Saved run({1, 2});
  for (const char* name : {"step-00000003.tmp.1", "step-00000009.tmp.12", "step-00000001.old"})
    fs::create_directories(run / name / "below");
  for (const char* name : {"step-00000004.bad", "notes"}) fs::create_directory(run / name);
  EXPECT_EQ(run.after(2, 0, -1), (Steps{1, 2}));
  EXPECT_EQ(aerie::test::names_in(run.path()),
            (std::set<std::string>{"step-00000001", "step-00000002", "step-00000004.bad", "notes"}));
}
