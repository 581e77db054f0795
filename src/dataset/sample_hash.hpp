// SPDX-License-Identifier: Apache-2.0
// One sample's share of dataset_hash; reader and writer use the same bytes in the same order.
#pragma once
#include <bit>
#include <cstdint>
#include <span>

#include <aerie/base/hash.hpp>
#include <aerie/io/store.hpp>

namespace aerie::dataset {

inline void hash_sample(base::Xxh3& hash, io::FailReason reject, std::span<const std::int32_t> ids,
                        std::span<const std::uint8_t> mask) {
  static_assert(std::endian::native == std::endian::little, "the hash is over little-endian values");
  const auto length = static_cast<std::int64_t>(ids.size());
  const auto reason = static_cast<std::uint8_t>(reject);
  hash.update(std::as_bytes(std::span(&length, 1)));
  hash.update(std::as_bytes(std::span(&reason, 1)));
  hash.update(std::as_bytes(ids));
  hash.update(std::as_bytes(mask));
}

}  // namespace aerie::dataset
