// SPDX-License-Identifier: Apache-2.0
// One part file: made once through HDF5, then only looked at (check_part) and read or written at known offsets.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/io/contiguous_file.hpp>

#include "manifest.hpp"
#include "record.hpp"
#include "row_data.hpp"

namespace aerie::io {

/// Where the rows and records of a part are; offsets in bytes.
struct PartLayout {
  struct Rows {
    std::int64_t offset = 0, row_bytes = 0;
  };
  std::vector<Rows> data;  // as row_datasets()
  std::int64_t state = 0;
  std::vector<std::int64_t> row_offset;  // [n+1]
  std::int64_t rows(std::int64_t j) const {
    return row_offset[static_cast<std::size_t>(j + 1)] - row_offset[static_cast<std::size_t>(j)];
  }
};

/// A byte range of one sample in the file.
struct Extent {
  std::int64_t offset = 0, bytes = 0;
};
/// By row dataset: the order in which xxh3 covers them.
std::vector<Extent> sample_extents(const PartLayout& layout, std::int64_t j);

/// Creates the part under its temporary name, reserves its space, syncs and renames it. Fills bytes and meta_xxh3 of
/// manifest.parts[index]; the caller syncs parts/. With `promised` its size and meta_xxh3 must come out as that says, or nothing
/// is left and RefusedError thrown. Throws IoError.
void create_part(const std::filesystem::path& store, Manifest& manifest, std::int64_t index,
                 std::span<const PlannedSample> samples, const PartInfo* promised = nullptr);

/// Opens the part and compares everything that never changes except meta_xxh3: size, attributes, types, shapes, alignment, index.
/// Each difference goes to `problem`; what makes the part unusable is thrown (MissingInputError, DataError, IoError).
PartLayout check_part(const std::filesystem::path& store, const Manifest& manifest, std::int64_t index,
                      const std::function<void(const std::string&)>& problem);
/// xxh3-128 of all bytes outside the datasets that change: the row datasets and state.
std::string metadata_hash(const base::File& file, const PartLayout& layout, std::int64_t tokens, std::int64_t n);

std::vector<Record> read_records(const base::File& file, const PartLayout& layout, std::int64_t n);
/// XXH3-64 of a sample's stored bytes, read in pieces that `look` (if any) sees on the way with their row dataset.
std::uint64_t stored_hash(const base::File& file, const PartLayout& layout, std::int64_t j,
                          const std::function<void(std::size_t dataset, std::span<const std::byte> bytes)>& look = {});
/// Asks the kernel to begin reading the ranges (of very long ones the beginning). Returns at once.
void read_ahead(const base::File& file, std::span<const Extent> extents);
/// Reads the range to `out` and hashes it on the way.
void read_and_hash(const base::File& file, const Extent& range, std::byte* out, base::Xxh3& hash);
/// fdatasync, so that what is read next is on disk; a read-only file system has nothing to sync. Throws IoError.
void sync_before_trust(const base::File& file);

}  // namespace aerie::io
