// SPDX-License-Identifier: Apache-2.0
// HDF5 tells where the datasets are and what the attributes say; every byte of data is then read with pread. Files are foreign
// input here: sizes, offsets and types are checked before they are used.
#include <aerie/io/contiguous_file.hpp>

#include "hdf5_handle.hpp"

#include <fmt/format.h>

namespace aerie::io {
namespace {

using base::DataError;
constexpr const char* layout_hint =
    "only contiguous, little-endian datasets in the root group are read; write the file again without chunks";

std::string name_of_link(hid_t group, hsize_t index, const std::string& file) {
  const auto length =
      check(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, nullptr, 0, H5P_DEFAULT), file + ": list names");
  std::string name(static_cast<std::size_t>(length), '\0');
  check(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, name.data(), name.size() + 1, H5P_DEFAULT),
        file + ": list names");
  return name;
}

ElementType element_type(hid_t type, const std::string& what) {
  const auto size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_COMPOUND:
      return ElementType::record;
    case H5T_STRING:
      if (H5Tis_variable_str(type) > 0)
        throw DataError(what + ": variable-length strings cannot be read as a flat array", layout_hint);
      return ElementType::text;
    case H5T_INTEGER: {
      if (size > 1 && H5Tget_order(type) != H5T_ORDER_LE) throw DataError(what + ": is not little-endian", layout_hint);
      const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
      if (size == 1 && !is_signed) return ElementType::u8;
      if (size == 2 && !is_signed) return ElementType::u16;
      if (size == 4 && is_signed) return ElementType::i32;
      if (size == 8) return is_signed ? ElementType::i64 : ElementType::u64;
      break;
    }
    case H5T_FLOAT:
      if (H5Tget_order(type) != H5T_ORDER_LE) throw DataError(what + ": is not little-endian", layout_hint);
      if (size == 4 && H5Tequal(type, H5T_IEEE_F32LE) > 0) return ElementType::f32;
      if (size == 8 && H5Tequal(type, H5T_IEEE_F64LE) > 0) return ElementType::f64;
      break;
    default:
      break;
  }
  throw DataError(fmt::format("{}: element type of {} bytes is not supported", what, size),
                  "u8, u16, i32, i64, u64, f32, f64, compounds and fixed-length strings are");
}

DatasetInfo inspect_dataset(hid_t dataset, const std::string& what, std::int64_t file_bytes) {
  const H5PropertyId dcpl(check(H5Dget_create_plist(dataset), what));
  if (H5Pget_layout(dcpl.id()) != H5D_CONTIGUOUS || H5Pget_external_count(dcpl.id()) != 0)
    throw DataError(what + ": is not contiguous inside this file", layout_hint);
  const H5TypeId type(check(H5Dget_type(dataset), what));
  const H5SpaceId space(check(H5Dget_space(dataset), what));
  DatasetInfo info;
  info.type = element_type(type.id(), what);
  info.element_bytes = static_cast<std::int64_t>(H5Tget_size(type.id()));
  const int rank = check(H5Sget_simple_extent_ndims(space.id()), what);
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  if (rank > 0) check(H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr), what);
  std::int64_t bytes = H5Sget_simple_extent_type(space.id()) == H5S_NULL ? 0 : info.element_bytes;
  for (const auto d : dims) {
    info.shape.push_back(static_cast<std::int64_t>(d));
    if (d > (hsize_t{1} << 62) || __builtin_mul_overflow(bytes, static_cast<std::int64_t>(d), &bytes))
      throw DataError(what + ": its shape is too large to be true", "the file is damaged");
  }
  if (bytes == 0) {  // nothing is stored, so HDF5 has no offset to give
    if (info.shape.empty()) info.shape.push_back(0);
    return info;
  }
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) {
    H5Eclear2(H5E_DEFAULT);
    throw DataError(what + ": has a shape but no storage", "the file was not written to its end");
  }
  std::int64_t end = 0;
  if (offset > static_cast<haddr_t>(file_bytes) || __builtin_add_overflow(static_cast<std::int64_t>(offset), bytes, &end) ||
      end > file_bytes)
    throw DataError(
        fmt::format("{}: {} bytes at offset {} reach past the end of the file ({} bytes)", what, bytes, offset, file_bytes),
        "the file is cut short");
  info.offset = static_cast<std::int64_t>(offset);
  return info;
}

std::string read_string(hid_t attribute, hid_t type, bool null_space, const std::string& what) {
  if (null_space) return {};
  if (H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    const H5TypeId memory(check(H5Tcopy(type), what));
    check(H5Aread(attribute, memory.id(), &text), what);
    std::string out = text ? text : "";
    if (text) H5free_memory(text);
    return out;
  }
  std::string out(H5Tget_size(type), '\0');
  check(H5Aread(attribute, type, out.data()), what);
  if (const auto nul = out.find('\0'); nul != std::string::npos) out.resize(nul);
  if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) out.resize(out.find_last_not_of(' ') + 1);
  return out;
}

/// Nothing for kinds that nobody here asks for (arrays of floats or strings, references, compounds).
std::optional<AttributeValue> read_attribute(hid_t attribute, const std::string& what) {
  const H5TypeId type(check(H5Aget_type(attribute), what));
  const H5SpaceId space(check(H5Aget_space(attribute), what));
  const auto kind = H5Sget_simple_extent_type(space.id());
  const auto count = check(H5Sget_simple_extent_npoints(space.id()), what);
  const auto cls = H5Tget_class(type.id());
  if (cls == H5T_STRING) {
    if (kind == H5S_SIMPLE && count != 1) return std::nullopt;
    return read_string(attribute, type.id(), kind == H5S_NULL, what);
  }
  if (kind == H5S_NULL || count > (1 << 16)) return std::nullopt;
  if (cls == H5T_INTEGER || cls == H5T_ENUM) {  // h5py stores bool as an enum
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    if (count > 0) check(H5Aread(attribute, H5T_NATIVE_INT64, values.data()), what);
    if (kind == H5S_SCALAR) return values.at(0);
    return values;
  }
  if (cls == H5T_FLOAT && count == 1) {
    double value = 0;
    check(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), what);
    return value;
  }
  return std::nullopt;
}

herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

std::int64_t DatasetInfo::bytes() const {
  std::int64_t n = element_bytes;
  for (const auto d : shape) n *= d;
  return n;
}

ContiguousFile ContiguousFile::open(const std::filesystem::path& path) {
  ContiguousFile out;
  out.file_ = base::open_read(path);
  const auto bytes = base::file_size(out.file_);
  const std::string name = path.string();

  const Hdf5Session session;
  const auto fapl = file_access();
  const H5FileId file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, fapl.id()));
  if (file.id() < 0) {
    std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 16)));
    base::pread_full(out.file_, head, 0);  // a disk that cannot be read is no damaged file: IoError
  }
  if (file.id() < 0)
    throw DataError(name + ": cannot be opened as HDF5: " + take_hdf5_errors(), "the file is damaged or not HDF5");
  const H5GroupId root(check(H5Gopen2(file.id(), "/", H5P_DEFAULT), name + ": root group"));
  H5G_info_t info{};
  check(H5Gget_info(root.id(), &info), name + ": root group");
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const auto link = name_of_link(root.id(), i, name);
    const std::string what = name + ": " + link;
    H5L_info_t link_info{};
    check(H5Lget_info(root.id(), link.c_str(), &link_info, H5P_DEFAULT), what);
    if (link_info.type != H5L_TYPE_HARD) throw DataError(what + ": is a link to somewhere else", layout_hint);
    const H5ObjectId object(check(H5Oopen(root.id(), link.c_str(), H5P_DEFAULT), what));
    if (H5Iget_type(object.id()) != H5I_DATASET) throw DataError(what + ": is not a dataset", layout_hint);
    out.datasets_.emplace(link, inspect_dataset(object.id(), what, bytes));
  }

  std::vector<std::string> names;
  hsize_t index = 0;
  check(H5Aiterate2(root.id(), H5_INDEX_NAME, H5_ITER_INC, &index, collect_name, &names), name + ": attributes");
  for (const auto& a : names) {
    const std::string what = name + ": attribute " + a;
    const H5AttributeId attribute(check(H5Aopen(root.id(), a.c_str(), H5P_DEFAULT), what));
    if (auto value = read_attribute(attribute.id(), what)) out.attributes_.emplace(a, std::move(*value));
  }
  return out;
}

const DatasetInfo& ContiguousFile::dataset(const std::string& name) const {
  const auto it = datasets_.find(name);
  if (it == datasets_.end()) throw DataError(fmt::format("{}: has no dataset '{}'", file_.path().string(), name));
  return it->second;
}

std::int64_t ContiguousFile::integer(const std::string& attribute) const {
  const auto it = attributes_.find(attribute);
  if (it == attributes_.end()) throw DataError(fmt::format("{}: has no attribute '{}'", file_.path().string(), attribute));
  if (const auto* value = std::get_if<std::int64_t>(&it->second)) return *value;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&it->second); list && list->size() == 1) return list->front();
  throw DataError(fmt::format("{}: attribute '{}' is not an integer", file_.path().string(), attribute));
}

std::string ContiguousFile::text(const std::string& attribute) const {
  const auto it = attributes_.find(attribute);
  if (it == attributes_.end()) throw DataError(fmt::format("{}: has no attribute '{}'", file_.path().string(), attribute));
  if (const auto* value = std::get_if<std::string>(&it->second)) return *value;
  throw DataError(fmt::format("{}: attribute '{}' is not a string", file_.path().string(), attribute));
}

void ContiguousFile::read(const std::string& name, std::int64_t first, std::int64_t count, void* out) const {
  const auto& d = dataset(name);
  const auto total = d.bytes() / d.element_bytes;
  if (first < 0 || count < 0 || first > total || count > total - first)
    throw DataError(
        fmt::format("{}: {}: {} elements from {} on wanted, but it has {}", file_.path().string(), name, count, first, total));
  if (count == 0) return;
  base::pread_full(file_, {static_cast<std::byte*>(out), static_cast<std::size_t>(count * d.element_bytes)},
                   d.offset + first * d.element_bytes);
}

void ContiguousFile::check_element_bytes(const std::string& name, std::size_t bytes) const {
  const auto found = dataset(name).element_bytes;
  if (found != static_cast<std::int64_t>(bytes))
    throw DataError(
        fmt::format("{}: {}: elements of {} bytes wanted, but they have {}", file_.path().string(), name, bytes, found));
}

}  // namespace aerie::io
