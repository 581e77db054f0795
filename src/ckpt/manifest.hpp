// SPDX-License-Identifier: Apache-2.0
// MANIFEST.json of a checkpoint: made by save, checked by open and verify. The order of `chunks` is fixed (vectors as listed,
// chunks ascending), so that a record is found by counting; only `files` and the chunks' file and offset depend on the rank
// count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/ckpt/checkpoint.hpp>

namespace aerie::ckpt {

constexpr const char* manifest_name = "MANIFEST.json";
constexpr const char* manifest_schema = "aerie-checkpoint";
constexpr int manifest_version = 1;

constexpr std::int64_t chunk_count(std::int64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }
constexpr std::int64_t chunk_size(std::int64_t bytes, std::int64_t chunk) {
  return std::min(chunk_bytes, bytes - chunk * chunk_bytes);
}

/// SHA-256 over the canonical text without "manifest_hash".
std::string hash_of_manifest(const base::Json& manifest);

/// Parses `text` and checks schema, hash, and that vectors, chunks and files fit together. Touches no other file. Throws
/// DataError naming `origin`; RefusedError for a version this program does not know (not damage: never renamed to .bad).
base::Json parse_manifest(std::string_view text, const std::string& origin);

/// Files of the manifest that are not there or have another size, one line each. Throws IoError when stat itself fails.
std::vector<std::string> missing_or_cut_files(const std::filesystem::path& dir, const base::Json& manifest, bool& some_missing);

}  // namespace aerie::ckpt
