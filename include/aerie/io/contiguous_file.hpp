// SPDX-License-Identifier: Apache-2.0
// An HDF5 file whose datasets are all contiguous, little-endian and in the root group: opened with HDF5 for its metadata,
// closed again, then read with pread at the datasets' offsets. Shared by store parts and token datasets.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <aerie/base/file.hpp>

namespace aerie::io {

enum class ElementType { u8, i32, u16, f32, i64, u64, f64, record, text };  // record: any compound; text: fixed-length string
struct DatasetInfo {
  ElementType type = ElementType::u8;
  std::int64_t element_bytes = 0;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // bytes from the start of the file
  std::int64_t bytes() const;
};
using AttributeValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;

class ContiguousFile {
 public:
  /// Throws MissingInputError, DataError (not HDF5, a dataset that is chunked, big-endian, out of the file's bounds).
  static ContiguousFile open(const std::filesystem::path& path);
  const std::map<std::string, DatasetInfo>& datasets() const { return datasets_; }
  const DatasetInfo& dataset(const std::string& name) const;  // throws DataError
  const std::map<std::string, AttributeValue>& attributes() const { return attributes_; }
  std::int64_t integer(const std::string& attribute) const;  // these throw DataError
  std::string text(const std::string& attribute) const;
  const base::File& file() const { return file_; }
  /// Reads `count` elements from element index `first` (flat) into `out` (count * element_bytes bytes).
  void read(const std::string& name, std::int64_t first, std::int64_t count, void* out) const;
  /// A whole dataset of T; checks the element size.
  template <class T>
  std::vector<T> read_all(const std::string& name) const {
    const auto& d = dataset(name);
    check_element_bytes(name, sizeof(T));
    std::vector<T> out(static_cast<std::size_t>(d.bytes()) / sizeof(T));
    read(name, 0, static_cast<std::int64_t>(out.size()), out.data());
    return out;
  }

 private:
  void check_element_bytes(const std::string& name, std::size_t bytes) const;
  base::File file_;
  std::map<std::string, DatasetInfo> datasets_;
  std::map<std::string, AttributeValue> attributes_;
};

}  // namespace aerie::io
