// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <aerie/train/adamw.hpp>
#include <aerie/train/sharding.hpp>

namespace aerie::train {
namespace {

TEST(Sharding, CoversAllBlocksOnceForAnyRankCount) {
  for (const std::int64_t elements :
       {std::int64_t{1}, block_elements - 1, block_elements, block_elements + 1, 7 * block_elements + 5})
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const auto s = make_sharding(elements, ranks);
      EXPECT_EQ(s.blocks, (elements + block_elements - 1) / block_elements);
      std::int64_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(s.begin(r), next);
        EXPECT_EQ(s.count(r) % block_elements, 0);
        next += s.count(r);
      }
      EXPECT_EQ(next, s.padded());
      EXPECT_GE(next, elements);
      EXPECT_LT(next - elements, block_elements);
    }
}

}  // namespace
}  // namespace aerie::train
