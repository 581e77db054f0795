// SPDX-License-Identifier: Apache-2.0
// rope_table against numbers that transformers made (tests/golden/rope).
#include <bit>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/json.hpp>
#include <aerie/interchange/target_config.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {
using base::Json;

RopeConfig through_config(const Json& keys, std::int64_t max_positions) {
  const test::TempDir tmp;
  Json config = test::llama_config();
  for (const char* key : {"rope_theta", "rope_scaling"}) config.erase(key);
  config["max_position_embeddings"] = max_positions;
  config.update(keys);
  test::write_model(tmp.path(), config);
  return read_target_config(ModelDirectory::open(tmp.path())).rope;
}

std::int64_t ulps(float a, float b) {
  return std::abs(static_cast<std::int64_t>(std::bit_cast<std::int32_t>(a)) - std::bit_cast<std::int32_t>(b));
}

TEST(Rope, AgreesWithTransformers) {
  const Json golden = base::read_json("tests/golden/rope/rope.json");
  ASSERT_EQ(golden.at("transformers"), "5.24.0");
  std::size_t values = 0, equal = 0;
  for (const auto& [name, c] : golden.at("cases").items()) {
    SCOPED_TRACE(name);
    const auto max_positions = c.at("max_position_embeddings").get<std::int64_t>();
    const auto table = rope_table(through_config(c.at("config"), max_positions), c.at("dim"), max_positions);
    const auto expected = c.at("inverse_frequency_bits").get<std::vector<std::uint32_t>>();
    ASSERT_EQ(table.inverse_frequency.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto want = std::bit_cast<float>(expected[i]);
      // The same operations in the same order; only pow may differ, by one unit in the last place between two good math
      // libraries. Each later operation rounds at most half a unit more and can double a relative distance's units when the
      // result lies in another binade: 4 in all.
      EXPECT_LE(ulps(table.inverse_frequency[i], want), 4)
          << "i = " << i << ": " << table.inverse_frequency[i] << " against " << want;
      ++values;
      equal += table.inverse_frequency[i] == want;
    }
    EXPECT_EQ(table.scale, static_cast<float>(c.at("scale").get<double>()));
  }
  RecordProperty("equal_bits", static_cast<int>(equal));
  std::printf("%zu of %zu frequencies have the same bits\n", equal, values);
  EXPECT_GE(equal * 100, values * 95);  // a systematic difference in the order of operations shows here first
  EXPECT_GE(values, 600U);
}

TEST(Rope, RefusesWhatItDoesNotKnow) {
  RopeConfig other;
  other.type = "longrope";
  EXPECT_THROW(rope_table(other, 64, 4096), base::DataError);
  EXPECT_THROW(rope_table({}, 63, 4096), base::DataError);
  EXPECT_THROW(rope_table({}, 0, 4096), base::DataError);
}

}  // namespace
}  // namespace aerie::interchange
