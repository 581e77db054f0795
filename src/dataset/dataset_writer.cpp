// SPDX-License-Identifier: Apache-2.0
#include "dataset_writer.hpp"

#include <algorithm>
#include <numeric>

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/version.hpp>

#include <fmt/format.h>

#include "sample_hash.hpp"

namespace aerie::dataset {
namespace {
constexpr std::size_t spool_bytes = 1 << 18;
constexpr std::int64_t copy_bytes = 1 << 24;

/// An HDF5 id and how to close it.
class Handle {
 public:
  Handle(hid_t id, herr_t (*closer)(hid_t), const std::string& what) : id_(id), close_(closer) {
    if (id < 0) throw base::IoError(what + ": HDF5 refuses", "check space and permissions there");
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t id() const { return id_; }
  bool close() { return close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};
void check(herr_t status, const std::string& what) {
  if (status < 0) throw base::IoError(what + ": HDF5 cannot write", "check space there");
}

/// HDF5 prints its errors unless told not to; ours carry the file's name.
class Quiet {
 public:
  Quiet() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

void write_attribute(hid_t file, const char* name, std::int64_t value, const std::string& what) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Handle a(H5Acreate2(file, name, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
  check(H5Awrite(a.id(), H5T_NATIVE_INT64, &value), what);
}
void write_attribute(hid_t file, const char* name, const std::string& value, const std::string& what) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, what);
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, what);
  std::string padded = value.empty() ? std::string(1, '\0') : value;  // a string type of length 0 does not exist
  check(H5Tset_size(type.id(), padded.size()), what);
  check(H5Tset_cset(type.id(), H5T_CSET_UTF8), what);
  check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), what);
  const Handle a(H5Acreate2(file, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
  check(H5Awrite(a.id(), type.id(), padded.data()), what);
}
}  // namespace

DatasetWriter::DatasetWriter(std::filesystem::path out)
    : out_(std::move(out)), tmp_(out_.string() + fmt::format(".tmp.{}", ::getpid())) {
  constexpr std::array<const char*, n_columns> names{"input_ids",  "loss_mask", "offsets",      "reject",    "source_line",
                                                     "id_offsets", "id_bytes",  "note_offsets", "note_bytes"};
  try {
    for (std::size_t c = 0; c < n_columns; ++c) {
      spools_[c].path = tmp_.string() + "." + names[c];
      spools_[c].file = base::open_file(spools_[c].path, O_RDWR | O_CREAT | O_TRUNC);
    }
  } catch (...) {
    for (const auto& s : spools_) ::unlink(s.path.c_str());
    throw;
  }
  for (const auto c : {offsets, id_offsets, note_offsets}) put_i64(c, 0);
}
DatasetWriter::~DatasetWriter() {
  for (const auto& s : spools_) ::unlink(s.path.c_str());
  ::unlink(tmp_.c_str());
}

void DatasetWriter::put(Column column, std::span<const std::byte> bytes) {
  auto& s = spools_[column];
  s.pending.insert(s.pending.end(), bytes.begin(), bytes.end());
  s.bytes += static_cast<std::int64_t>(bytes.size());
  if (s.pending.size() >= spool_bytes) flush(s);
}
void DatasetWriter::put_i64(Column column, std::int64_t value) { put(column, std::as_bytes(std::span(&value, 1))); }
void DatasetWriter::flush(Spool& spool) {
  base::write_full(spool.file, spool.pending);
  spool.pending.clear();
}

void DatasetWriter::add(std::string_view id, std::int64_t line, io::FailReason reject, std::string_view note,
                        const Tokens& tokens) {
  base::expect(tokens.ids.size() == tokens.mask.size(), "as many mask values as tokens");
  base::expect(tokens.ids.empty() == (reject != io::FailReason::none), "rejected samples have no tokens, others have some");
  hash_sample(hash_, reject, tokens.ids, tokens.mask);
  ++n_samples_;
  n_tokens_ += static_cast<std::int64_t>(tokens.ids.size());
  n_loss_tokens_ += std::accumulate(tokens.mask.begin(), tokens.mask.end(), std::int64_t{0});
  id_end_ += static_cast<std::int64_t>(id.size());
  note_end_ += static_cast<std::int64_t>(note.size());
  const auto reason = static_cast<std::uint8_t>(reject);
  put(input_ids, std::as_bytes(std::span(tokens.ids)));
  put(loss_mask, std::as_bytes(std::span(tokens.mask)));
  put_i64(offsets, n_tokens_);
  put(reject_reason, std::as_bytes(std::span(&reason, 1)));
  put_i64(source_line, line);
  put_i64(id_offsets, id_end_);
  put(id_bytes, std::as_bytes(std::span(id)));
  put_i64(note_offsets, note_end_);
  put(note_bytes, std::as_bytes(std::span(note)));
}

void DatasetWriter::publish(const DatasetAttributes& attributes) {
  for (auto& s : spools_) flush(s);
  write_hdf5(attributes);
  const auto written = base::open_file(tmp_, O_RDWR);
  base::fsync_file(written);
  base::rename_durable(tmp_, out_);
}

void DatasetWriter::write_hdf5(const DatasetAttributes& attributes) {
  const Quiet quiet;
  const std::string what = tmp_.string();
  Handle file(H5Fcreate(what.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, what);
  for (std::size_t c = 0; c < n_columns; ++c) copy_column(file.id(), static_cast<Column>(c));
  const auto number = [&](const char* name, std::int64_t value) { write_attribute(file.id(), name, value, what); };
  const auto text = [&](const char* name, const std::string& value) { write_attribute(file.id(), name, value, what); };
  text("schema", "aerie-dataset");
  number("schema_version", 1);
  number("n_samples", n_samples_);
  number("n_tokens", n_tokens_);
  number("n_loss_tokens", n_loss_tokens_);
  number("n_truncated", attributes.n_truncated);
  number("max_length", attributes.max_length);
  text("overlength", attributes.overlength);
  number("vocab_size", attributes.vocab_size);
  text("tokenizer_hash", attributes.tokenizer_hash);
  text("dataset_hash", hash_.digest128());
  text("source", attributes.source);
  text("producer", base::producer());
  if (!file.close()) throw base::IoError(what + ": HDF5 cannot finish the file", "check space there");
}

void DatasetWriter::copy_column(std::int64_t file, Column column) {
  auto& s = spools_[column];
  const std::string what = tmp_.string() + " from " + s.path.string();
  const bool is_i64 = column == offsets || column == source_line || column == id_offsets || column == note_offsets;
  const hid_t type = column == input_ids ? H5T_STD_I32LE : is_i64 ? H5T_STD_I64LE : H5T_STD_U8LE;
  const std::int64_t element = column == input_ids ? 4 : is_i64 ? 8 : 1;
  const std::string name = s.path.extension().string().substr(1);
  const hsize_t n = static_cast<hsize_t>(s.bytes / element);
  const Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose, what);
  const Handle data(H5Dcreate2(file, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose, what);
  std::vector<std::byte> block;
  for (std::int64_t at = 0; at < s.bytes; at += static_cast<std::int64_t>(block.size())) {
    block.resize(static_cast<std::size_t>(std::min(copy_bytes, s.bytes - at)));
    base::pread_full(s.file, block, at);
    const hsize_t first = static_cast<hsize_t>(at / element), count = block.size() / static_cast<hsize_t>(element);
    const Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose, what);
    check(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &first, nullptr, &count, nullptr), what);
    check(H5Dwrite(data.id(), type, memory.id(), space.id(), H5P_DEFAULT, block.data()), what);
  }
  s.file.close();
  ::unlink(s.path.c_str());  // at most one copy of the data beside the result
}

}  // namespace aerie::dataset
