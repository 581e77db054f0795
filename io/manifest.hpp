// SPDX-License-Identifier: Apache-2.0
// manifest.json: identities, the plan and the list of parts. Written once, at the end of creation; never changed.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/store.hpp>

namespace aerie::io {

constexpr std::int64_t schema_version = 1;
constexpr const char* schema_name = "aerie-store";

struct Manifest {
  StoreIdentity identity;
  std::string uuid, plan_hash;
  std::int64_t part_bytes = 0, n_samples = 0, n_tokens = 0;
  std::vector<PartInfo> parts;
  base::Json json;
  std::string hash;  // xxh3-128 of the file's bytes
};

std::filesystem::path manifest_path(const std::filesystem::path& store);
/// Throws MissingInputError, or DataError naming the field.
Manifest load_manifest(const std::filesystem::path& store);
/// The text of manifest.json.
std::string manifest_text(const Manifest& manifest);

/// Root attributes of part `index`, in the order they are written. Same function for writing and for checking.
std::vector<std::pair<std::string, AttributeValue>> part_attributes(const Manifest& manifest, std::int64_t index);

/// Consecutive samples up to `part_bytes` each, at least one; fills file, first, n, tokens. Checks the samples.
std::vector<PartInfo> plan_parts(const StoreIdentity& identity, std::span<const PlannedSample> samples, std::int64_t part_bytes);
/// Over lengths, rejections and the partition.
std::string plan_hash(std::span<const PlannedSample> samples, std::span<const PartInfo> parts);

std::int64_t bytes_per_token(const StoreIdentity& identity);
std::string dtype_name(StateDtype dtype);
std::string part_file(std::int64_t index);
/// Where set_part_aside() moves a part.
std::filesystem::path set_aside_path(const std::filesystem::path& store, std::int64_t part);
std::filesystem::path lock_path(const std::filesystem::path& store, std::int64_t part);
/// 128 random bits in the usual form.
std::string random_uuid();

}  // namespace aerie::io
