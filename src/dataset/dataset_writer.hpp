// SPDX-License-Identifier: Apache-2.0
// Writes a dataset file. Samples are spooled to raw files beside it, because a contiguous dataset needs its size before its
// first byte; publish() copies them into HDF5 in blocks, syncs and renames. Nothing is left behind without publish().
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/dataset/dataset.hpp>

namespace aerie::dataset {

struct DatasetAttributes {
  std::int64_t n_truncated = 0, max_length = 0, vocab_size = 0;
  std::string overlength, tokenizer_hash, source;
};

class DatasetWriter {
 public:
  /// Throws IoError when the folder cannot be written.
  explicit DatasetWriter(std::filesystem::path out);
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  /// A rejected sample must have no tokens.
  void add(std::string_view id, std::int64_t line, io::FailReason reject, std::string_view note, const Tokens& tokens);
  /// Throws IoError; then nothing was published.
  void publish(const DatasetAttributes& attributes);

  std::int64_t n_samples() const { return n_samples_; }
  std::int64_t n_tokens() const { return n_tokens_; }
  std::int64_t n_loss_tokens() const { return n_loss_tokens_; }

 private:
  enum Column : std::size_t {
    input_ids,
    loss_mask,
    offsets,
    reject_reason,
    source_line,
    id_offsets,
    id_bytes,
    note_offsets,
    note_bytes,
    n_columns
  };
  struct Spool {
    std::filesystem::path path;
    base::File file;
    std::vector<std::byte> pending;
    std::int64_t bytes = 0;
  };
  void put(Column column, std::span<const std::byte> bytes);
  void put_i64(Column column, std::int64_t value);
  void flush(Spool& spool);
  void write_hdf5(const DatasetAttributes& attributes);
  void copy_column(std::int64_t file, Column column);  // an hid_t, which is 64 bits wide since HDF5 1.10

  std::filesystem::path out_, tmp_;
  std::array<Spool, n_columns> spools_;
  base::Xxh3 hash_;
  std::int64_t n_samples_ = 0, n_tokens_ = 0, n_loss_tokens_ = 0, id_end_ = 0, note_end_ = 0;
};

}  // namespace aerie::dataset
