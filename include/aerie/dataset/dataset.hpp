// SPDX-License-Identifier: Apache-2.0
// Tokenised conversations: token ids and loss masks in one HDF5 file, written by aerie-prepare or `aerie import`, in the
// canonical sample order. A rejected conversation keeps its index with zero tokens, so that the count never changes silently.
//
// File layout (contiguous, root group; T tokens, n samples):
//   input_ids i32 [T], loss_mask u8 [T], offsets i64 [n+1], reject u8 [n] (io::FailReason), source_line i64 [n] (1-based),
//   id_offsets i64 [n+1], id_bytes u8 [...] (UTF-8 string ids, one after another),
//   note_offsets i64 [n+1], note_bytes u8 [...] (why a sample was rejected or truncated; mostly empty)
// Attributes: schema "aerie-dataset", schema_version 1, n_samples, n_tokens, n_loss_tokens, n_truncated, max_length (0: none),
//   overlength, vocab_size, tokenizer_hash, dataset_hash, source, producer.
// dataset_hash = xxh3-128 over, for each sample in order: length (i64 LE), reject (u8), ids (i32 LE), mask (u8).
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/io/store.hpp>

namespace aerie::dataset {

struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> mask;
};

class Dataset {
 public:
  /// Reads index and attributes; token data stay on disk. Throws MissingInputError, DataError naming file and sample.
  static Dataset open(const std::filesystem::path& path);
  const std::filesystem::path& path() const;
  std::int64_t size() const;
  std::int64_t length(std::int64_t sample) const;
  std::int64_t n_tokens() const;
  io::FailReason reject(std::int64_t sample) const;
  std::string id(std::int64_t sample) const;
  std::string note(std::int64_t sample) const;
  std::int64_t source_line(std::int64_t sample) const;
  void read(std::int64_t sample, Tokens& out) const;
  const std::string& hash() const;  // as recorded
  const std::string& tokenizer_hash() const;
  std::int64_t vocab_size() const;
  std::int64_t max_length() const;
  std::int64_t n_truncated() const;
  /// Recomputes dataset_hash from the tokens; throws DataError when it differs from the recorded one. Reads everything.
  void verify() const;
  struct Impl;

 private:
  explicit Dataset(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

enum class Overlength { truncate, skip, fail };
Overlength overlength_from_name(std::string_view name);  // throws ConfigError

struct ImportOptions {
  std::int64_t max_length = 0;  // 0: no limit
  Overlength overlength = Overlength::truncate;
  std::int64_t vocab_size = 0;  // 0: ids are not checked
  std::string tokenizer_hash{};
  std::int64_t limit = 0;  // 0: all
};
struct ImportSummary {
  std::int64_t samples = 0, tokens = 0, loss_tokens = 0, truncated = 0;
  std::array<std::int64_t, 8> rejected{};  // by FailReason
};
/// Pre-tokenised JSONL ({"id", "input_ids", "loss_mask"} a line) to a dataset file, streaming, published atomically. A line that
/// is not valid keeps its index as BAD_INPUT (or EMPTY, NO_LOSS, BAD_TOKEN, TOO_LONG) with a note that names file and line.
/// Throws DataError when every sample is rejected.
ImportSummary import_jsonl(const std::filesystem::path& jsonl, const std::filesystem::path& out, const ImportOptions& options);

}  // namespace aerie::dataset
