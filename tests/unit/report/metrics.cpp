// SPDX-License-Identifier: Apache-2.0
// Metrics: no step twice after a resume.
#include <aerie/report/metrics.hpp>

#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
using aerie::report::Metrics;

namespace {
const std::string three = "{\"run\":\"x\"}\n{\"step\":1}\n{\"match\":0.5,\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
std::string after(const std::string& before, std::int64_t last_step) {
  aerie::test::TempDir dir;
  std::ofstream(dir / "m.jsonl") << before;
  Metrics(dir / "m.jsonl", last_step).write({{"step", 9}});
  return base::read_text(dir / "m.jsonl");
}
}  // namespace

TEST(Metrics, CutsWhatIsAboveTheCheckpoint) {
  const std::string nine = "{\"step\":9}\n";
  EXPECT_EQ(after(three, 2), "{\"run\":\"x\"}\n{\"step\":1}\n{\"match\":0.5,\"step\":1}\n{\"step\":2}\n" + nine);
  EXPECT_EQ(after(three, 3), three + nine);
  EXPECT_EQ(after(three, std::numeric_limits<std::int64_t>::max()), three + nine);
  EXPECT_EQ(after(three, 0), "{\"run\":\"x\"}\n" + nine);
  EXPECT_EQ(after(three, -1), nine);
}
TEST(Metrics, TornLastLineGoes) { EXPECT_EQ(after(three + "{\"step\":2", 3), three + "{\"step\":9}\n"); }
TEST(Metrics, StartsWithoutAFile) {
  aerie::test::TempDir dir;
  Metrics metrics(dir / "m.jsonl", -1);
  metrics.write({{"step", 1}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  metrics.write({{"step", 2}});
  EXPECT_EQ(base::read_text(dir / "m.jsonl"), "{\"loss\":null,\"step\":1}\n{\"step\":2}\n");
  EXPECT_THROW(Metrics(dir / "none" / "m.jsonl", -1), base::IoError);
}
