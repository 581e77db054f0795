// SPDX-License-Identifier: Apache-2.0
// Reads a dataset file: index in memory, tokens by pread. Everything that the file says is checked before it is used.
#include <aerie/dataset/dataset.hpp>

#include <algorithm>

#include <aerie/base/error.hpp>
#include <aerie/io/contiguous_file.hpp>

#include <fmt/format.h>

#include "sample_hash.hpp"

namespace aerie::dataset {
namespace {
using base::DataError;
constexpr const char* remake = "make it again with aerie-prepare or aerie import";
constexpr std::uint8_t last_reason = static_cast<std::uint8_t>(io::FailReason::target);
}  // namespace

struct Dataset::Impl {
  std::filesystem::path path;
  io::ContiguousFile file;
  std::vector<std::int64_t> offsets, source_line, id_offsets, note_offsets;
  std::vector<std::uint8_t> reject, id_bytes, note_bytes;
  std::int64_t n = 0, n_tokens = 0, vocab_size = 0, max_length = 0, n_truncated = 0;
  std::string hash, tokenizer_hash;

  explicit Impl(const std::filesystem::path& p) : path(p), file(io::ContiguousFile::open(p)) {
    check_schema();
    n = file.integer("n_samples");
    n_tokens = file.integer("n_tokens");
    vocab_size = file.integer("vocab_size");
    max_length = file.integer("max_length");
    n_truncated = file.integer("n_truncated");
    hash = file.text("dataset_hash");
    tokenizer_hash = file.text("tokenizer_hash");
    for (const auto& [value, name] : {std::pair(n, "n_samples"),
                                      {n_tokens, "n_tokens"},
                                      {vocab_size, "vocab_size"},
                                      {max_length, "max_length"},
                                      {n_truncated, "n_truncated"}})
      if (value < 0 || value >= std::int64_t{1} << 60) fail(fmt::format("attribute {} is {}", name, value));

    using io::ElementType;
    check_column("input_ids", ElementType::i32, n_tokens);
    check_column("loss_mask", ElementType::u8, n_tokens);
    offsets = offsets_of("offsets", n_tokens);
    id_bytes = text_of("id_bytes");
    id_offsets = offsets_of("id_offsets", static_cast<std::int64_t>(id_bytes.size()));
    note_bytes = text_of("note_bytes");
    note_offsets = offsets_of("note_offsets", static_cast<std::int64_t>(note_bytes.size()));
    check_column("reject", ElementType::u8, n);
    reject = file.read_all<std::uint8_t>("reject");
    check_column("source_line", ElementType::i64, n);
    source_line = file.read_all<std::int64_t>("source_line");
    for (std::int64_t s = 0; s < n; ++s) check_sample(s);
  }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path.string() + ": " + what, remake); }
  std::string name(std::int64_t s) const { return fmt::format("sample {} ('{}')", s, slice(id_bytes, id_offsets, s)); }

  void check_schema() const {
    if (!file.attributes().contains("schema") || file.text("schema") != "aerie-dataset") fail("is not a dataset of aerie");
    if (const auto version = file.integer("schema_version"); version != 1)
      throw DataError(fmt::format("{}: has schema version {}, this program reads 1", path.string(), version),
                      "use a newer aerie");
  }
  void check_column(const std::string& column, io::ElementType type, std::int64_t count) const {
    const auto& d = file.dataset(column);
    if (d.type != type) fail(column + " has another element type than the format says");
    if (d.shape != std::vector<std::int64_t>{count}) fail(fmt::format("{} does not hold {} values", column, count));
  }
  std::vector<std::uint8_t> text_of(const std::string& column) const {
    const auto& d = file.dataset(column);
    if (d.type != io::ElementType::u8 || d.shape.size() != 1) fail(column + " has another element type than the format says");
    return file.read_all<std::uint8_t>(column);
  }
  std::vector<std::int64_t> offsets_of(const std::string& column, std::int64_t end) const {
    check_column(column, io::ElementType::i64, n + 1);
    auto out = file.read_all<std::int64_t>(column);
    if (out.front() != 0 || out.back() != end) fail(fmt::format("{} does not run from 0 to {}", column, end));
    if (const auto down = std::is_sorted_until(out.begin(), out.end()); down != out.end())
      fail(fmt::format("{} goes down at sample {}", column, down - out.begin() - 1));
    return out;
  }
  void check_sample(std::int64_t s) const {
    const auto i = static_cast<std::size_t>(s);
    const auto length = offsets[i + 1] - offsets[i];
    if (reject[i] > last_reason) fail(fmt::format("{}: reject reason {} is unknown", name(s), reject[i]));
    if (reject[i] != 0 && length != 0) fail(fmt::format("{} is rejected but has {} tokens", name(s), length));
    if (reject[i] == 0 && length == 0) fail(name(s) + " has no tokens but is not rejected");
  }
  std::string slice(const std::vector<std::uint8_t>& bytes, const std::vector<std::int64_t>& at, std::int64_t s) const {
    const auto i = static_cast<std::size_t>(s);
    return {bytes.begin() + at[i], bytes.begin() + at[i + 1]};
  }
  std::size_t index(std::int64_t s) const {
    base::expect(s >= 0 && s < n, "the sample is in the dataset");
    return static_cast<std::size_t>(s);
  }
  /// Tokens as stored, without a look at their values.
  void read_raw(std::int64_t s, Tokens& out) const {
    const auto i = index(s);
    const auto length = offsets[i + 1] - offsets[i];
    out.ids.resize(static_cast<std::size_t>(length));
    out.mask.resize(static_cast<std::size_t>(length));
    file.read("input_ids", offsets[i], length, out.ids.data());
    file.read("loss_mask", offsets[i], length, out.mask.data());
  }
};

Dataset Dataset::open(const std::filesystem::path& path) { return Dataset(std::make_shared<Impl>(path)); }
const std::filesystem::path& Dataset::path() const { return impl_->path; }
std::int64_t Dataset::size() const { return impl_->n; }
std::int64_t Dataset::length(std::int64_t sample) const {
  const auto i = impl_->index(sample);
  return impl_->offsets[i + 1] - impl_->offsets[i];
}
std::int64_t Dataset::n_tokens() const { return impl_->n_tokens; }
io::FailReason Dataset::reject(std::int64_t sample) const {
  return static_cast<io::FailReason>(impl_->reject[impl_->index(sample)]);
}
std::string Dataset::id(std::int64_t sample) const {
  impl_->index(sample);
  return impl_->slice(impl_->id_bytes, impl_->id_offsets, sample);
}
std::string Dataset::note(std::int64_t sample) const {
  impl_->index(sample);
  return impl_->slice(impl_->note_bytes, impl_->note_offsets, sample);
}
std::int64_t Dataset::source_line(std::int64_t sample) const { return impl_->source_line[impl_->index(sample)]; }
const std::string& Dataset::hash() const { return impl_->hash; }
const std::string& Dataset::tokenizer_hash() const { return impl_->tokenizer_hash; }
std::int64_t Dataset::vocab_size() const { return impl_->vocab_size; }
std::int64_t Dataset::max_length() const { return impl_->max_length; }
std::int64_t Dataset::n_truncated() const { return impl_->n_truncated; }

void Dataset::read(std::int64_t sample, Tokens& out) const {
  impl_->read_raw(sample, out);
  const auto end = impl_->vocab_size > 0 ? impl_->vocab_size : std::int64_t{1} << 31;
  for (std::size_t t = 0; t < out.ids.size(); ++t) {
    if (out.ids[t] < 0 || out.ids[t] >= end)
      impl_->fail(fmt::format("{}: token {} is {}, outside the vocabulary of {}", impl_->name(sample), t, out.ids[t], end));
    if (out.mask[t] > 1) impl_->fail(fmt::format("{}: loss mask {} is {}, not 0 or 1", impl_->name(sample), t, out.mask[t]));
  }
}

void Dataset::verify() const {
  base::Xxh3 hash;
  Tokens tokens;
  for (std::int64_t s = 0; s < size(); ++s) {
    impl_->read_raw(s, tokens);
    hash_sample(hash, reject(s), tokens.ids, tokens.mask);
  }
  if (const auto found = hash.digest128(); found != impl_->hash)
    impl_->fail(fmt::format("tokens hash to {}, the file records {}: it was damaged after it was written", found, impl_->hash));
}

}  // namespace aerie::dataset
