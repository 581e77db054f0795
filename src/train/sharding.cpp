// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/sharding.hpp>

#include <aerie/train/adamw.hpp>

namespace aerie::train {

Sharding make_sharding(std::int64_t elements, int ranks) {
  Sharding s;
  s.elements = elements;
  s.blocks = (elements + block_elements - 1) / block_elements;
  for (int r = 0; r <= ranks; ++r) s.first_block.push_back(s.blocks * r / ranks);
  return s;
}
std::int64_t Sharding::padded() const { return blocks * block_elements; }
std::int64_t Sharding::begin(int rank) const { return first_block[static_cast<std::size_t>(rank)] * block_elements; }
std::int64_t Sharding::count(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return (first_block[r + 1] - first_block[r]) * block_elements;
}
std::vector<std::int64_t> Sharding::counts(std::int64_t bytes_per_element) const {
  std::vector<std::int64_t> out;
  for (std::size_t r = 0; r + 1 < first_block.size(); ++r) out.push_back(count(static_cast<int>(r)) * bytes_per_element);
  return out;
}

}  // namespace aerie::train
