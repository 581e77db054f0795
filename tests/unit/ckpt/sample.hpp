// SPDX-License-Identifier: Apache-2.0
// Vectors to save, the same for any rank count, and helpers to look at directories.
#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <aerie/base/hash.hpp>
#include <aerie/base/philox.hpp>
#include <aerie/ckpt/checkpoint.hpp>

namespace aerie::test {

using Vectors = std::vector<std::pair<std::string, std::vector<std::byte>>>;

/// Vectors of the given sizes, their bytes depending on `seed`.
inline Vectors make_vectors(std::uint64_t seed, const std::vector<std::pair<std::string, std::size_t>>& sizes) {
  Vectors out;
  for (const auto& [name, bytes] : sizes) {
    std::vector<std::byte> v(bytes);
    for (std::size_t i = 0; i < bytes; i += 4096) {  // random at each page's start, a pattern between: quick to make
      const auto r = base::random_u64(seed, base::Purpose::test, out.size(), i);
      std::memset(v.data() + i, static_cast<int>(r & 0xff), std::min<std::size_t>(4096, bytes - i));
      std::memcpy(v.data() + i, &r, std::min<std::size_t>(8, bytes - i));
    }
    out.emplace_back(name, std::move(v));
  }
  return out;
}

/// A vector of whole chunks plus a tail, one of exactly a chunk, a short one, one without bytes.
inline Vectors make_vectors(std::uint64_t seed) {
  const auto c = static_cast<std::size_t>(ckpt::chunk_bytes);
  return make_vectors(seed, {{"masters", 2 * c + 1236}, {"exp_avg", c}, {"short", 12}, {"none", 0}});
}

/// What rank `rank` of `ranks` brings: chunks dealt out in turn, so that ranks hold unequal numbers, and from the fifth rank on
/// none.
inline ckpt::SaveRequest make_request(const std::filesystem::path& root, std::int64_t step, const Vectors& vectors, int rank = 0,
                                      int ranks = 1, std::int64_t attempt = 1) {
  ckpt::SaveRequest request;
  request.root = root;
  request.step = step;
  request.attempt = attempt;
  request.identity = {{"config_hash", "sha256:00"}, {"store_uuid", "u"}};
  request.position = {{"packs", 4 * step}, {"step", step}};
  int turn = 0;
  for (const auto& [name, bytes] : vectors) {
    request.vectors.push_back({name, "F32", static_cast<std::int64_t>(bytes.size())});
    const auto n = static_cast<std::int64_t>(bytes.size());
    for (std::int64_t c = 0; c * ckpt::chunk_bytes < n; ++c, ++turn)
      if (turn % ranks == rank)
        request.chunks.push_back(
            {name, c,
             std::span(bytes).subspan(static_cast<std::size_t>(c * ckpt::chunk_bytes),
                                      static_cast<std::size_t>(std::min(ckpt::chunk_bytes, n - c * ckpt::chunk_bytes)))});
  }
  return request;
}

inline std::string sha256_of(const std::vector<std::byte>& bytes) {
  base::Sha256 h;
  h.update(bytes);
  return h.finish_tagged();
}
inline std::set<std::string> names_in(const std::filesystem::path& dir) {
  std::set<std::string> out;
  std::error_code none;
  for (const auto& e : std::filesystem::directory_iterator(dir, none)) out.insert(e.path().filename().string());
  return out;
}

}  // namespace aerie::test
