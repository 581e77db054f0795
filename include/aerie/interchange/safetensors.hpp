// SPDX-License-Identifier: Apache-2.0
// safetensors files: a reader that checks every bound before it trusts a byte, and a writer that publishes atomically.
// Format: u64 LE header length | JSON header | data; tensors row-major, little-endian, without holes or overlap.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/file.hpp>

namespace aerie::interchange {

/// Element types by their safetensors names; the size in bytes follows from the type.
enum class Dtype { boolean, u8, i8, f8_e4m3, f8_e5m2, i16, u16, f16, bf16, i32, u32, f32, i64, u64, f64 };
std::size_t dtype_size(Dtype dtype);
std::string_view dtype_name(Dtype dtype);      // "BF16"
Dtype dtype_from_name(std::string_view name);  // throws DataError

struct TensorInfo {
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // byte offsets from the start of the file
  std::int64_t bytes() const { return end - begin; }
  std::int64_t elements() const;
};

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};
/// Parses a header. `head` holds the file's first bytes (at least 8 + header length), `file_bytes` the file's size.
/// Throws DataError naming `origin`: header length past the file or above 100 MB, bad JSON, unknown dtype, negative or
/// overflowing shapes, offsets that overlap, leave holes, do not match shape x size, or pass the end of the file.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, std::int64_t file_bytes, std::string_view origin);

class SafetensorsFile {
 public:
  /// Throws MissingInputError, IoError, DataError.
  static SafetensorsFile open(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  bool contains(const std::string& name) const { return header_.tensors.contains(name); }
  /// Throws DataError when there is no such tensor.
  const TensorInfo& info(const std::string& name) const;
  /// Reads the whole tensor into `out`, whose size must be info(name).bytes().
  void read(const std::string& name, std::span<std::byte> out) const;
  std::vector<std::byte> read(const std::string& name) const;
  /// Reads out.size() bytes from byte `offset` of the tensor on; for walking a tensor in bounded memory.
  void read_at(const std::string& name, std::int64_t offset, std::span<std::byte> out) const;

 private:
  base::File file_;
  SafetensorsHeader header_;
};

struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // borrowed until write_safetensors returns
};
/// Writes tensors in the given order, data start 64-byte aligned; same input, same bytes. Published atomically and durably.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace aerie::interchange
