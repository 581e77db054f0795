// SPDX-License-Identifier: Apache-2.0
// The datasets of a part that have a row per token, and a sample in the form in which it lies in them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/store.hpp>

namespace aerie::io {

/// Position in row_datasets(), which is also the order in which a sample's checksum covers them.
enum RowData : std::size_t { aux_rows, last_rows, id_rows, mask_rows, aux_scale_rows, last_scale_rows, max_row_datasets };

struct RowDataset {
  const char* name = nullptr;
  ElementType type = ElementType::u8;
  std::int64_t element_bytes = 0, width = 0;  // width 0: one dimension, an element per token
  std::int64_t row_bytes() const { return element_bytes * (width > 0 ? width : 1); }
};
/// Four datasets, or six with the scales of fp8.
std::vector<RowDataset> row_datasets(const StoreIdentity& identity);

/// A sample as its bytes in the file. Vectors keep their capacity.
struct StoredSample {
  std::vector<std::uint16_t> aux16, last16;  // bf16 stores
  std::vector<std::uint8_t> aux8, last8;     // fp8 stores
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;
  std::vector<float> aux_scale, last_scale;  // fp8 stores
  bool fp8 = false;

  /// Sized for `tokens` rows, to be filled through pieces().
  void resize(const StoreIdentity& identity, std::int64_t tokens);
  /// By row dataset.
  std::vector<std::span<std::byte>> pieces();
  std::vector<std::span<const std::byte>> pieces() const;
  std::int64_t bytes() const;
  std::uint64_t xxh3() const;
};

/// The form in which the store keeps it; the scale of a row is max |x| / 448, so that the largest value gets the largest code.
/// Nothing when a state is not finite.
std::optional<StoredSample> encode(SampleData&& data, const StoreIdentity& identity);
/// fp8 is widened to bf16 (code x scale, rounded once).
void decode(StoredSample&& stored, const StoreIdentity& identity, SampleData& out);

}  // namespace aerie::io
