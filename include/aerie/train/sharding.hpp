// SPDX-License-Identifier: Apache-2.0
// Who owns which blocks of the flat parameter vector (ZeRO-1). The vector is padded to whole blocks; shards are runs of whole
// blocks.
#pragma once
#include <cstdint>
#include <vector>

namespace aerie::train {

struct Sharding {
  std::int64_t elements = 0;  // unpadded
  std::int64_t blocks = 0;
  std::vector<std::int64_t> first_block;  // per rank, ranks + 1 entries
  std::int64_t padded() const;
  std::int64_t begin(int rank) const;  // first element of the rank's shard
  std::int64_t count(int rank) const;  // its elements, padding included
  std::vector<std::int64_t> counts(std::int64_t bytes_per_element = 1) const;
};
Sharding make_sharding(std::int64_t elements, int ranks);

}  // namespace aerie::train
