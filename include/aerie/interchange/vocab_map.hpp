// SPDX-License-Identifier: Apache-2.0
// The draft vocabulary: which target ids the drafter can say. Kept as vocab.safetensors: d2t I64 [Vd] (offsets: target id
// minus draft id), t2d BOOL [V], counts I64 [V] (loss tokens seen in training data).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::interchange {

struct VocabMap {
  std::vector<std::int64_t> d2t;     // [Vd]
  std::vector<std::uint8_t> t2d;     // [V], 0 or 1
  std::vector<std::int64_t> counts;  // [V]; may be empty for imported maps
  std::int64_t draft_size() const { return static_cast<std::int64_t>(d2t.size()); }
  std::int64_t target_size() const { return static_cast<std::int64_t>(t2d.size()); }
  std::int64_t target_id(std::int64_t draft_id) const { return draft_id + d2t[static_cast<std::size_t>(draft_id)]; }
  /// Share of counted loss tokens that the draft vocabulary covers, in [0, 1].
  double coverage() const;
};

/// The `draft_size` most frequent ids, ties by lower id, sorted ascending. Throws ConfigError when draft_size is not in
/// [1, counts.size()].
VocabMap select_vocab(std::span<const std::int64_t> counts, std::int64_t draft_size);

/// Throws DataError: i + d2t[i] not strictly increasing below V (says so when the map holds absolute ids), t2d not the same set.
void check_vocab_map(const VocabMap& map, std::string_view origin);

VocabMap read_vocab_map(const std::filesystem::path& path);
void write_vocab_map(const std::filesystem::path& path, const VocabMap& map);
/// Of d2t and t2d; part of every checkpoint's identity.
std::string vocab_hash(const VocabMap& map);

}  // namespace aerie::interchange
