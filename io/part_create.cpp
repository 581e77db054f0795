// SPDX-License-Identifier: Apache-2.0
// Making a part: the only place where HDF5 writes. Every object starts at a multiple of 4096, data extents are allocated early
// and not filled, superblock version 2 carries no open-for-write mark that a crash could leave behind.
#include <atomic>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/log.hpp>

#include "hdf5_handle.hpp"
#include "part.hpp"

namespace aerie::io {
namespace {

using base::IoError;

template <class R>
R ok(R result, const std::string& what, std::source_location at = std::source_location::current()) {
  return check<IoError>(result, what, at);
}

H5TypeId string_type(std::size_t length, const std::string& what) {
  H5TypeId type(ok(H5Tcopy(H5T_C_S1), what));
  ok(H5Tset_size(type.id(), length + 1), what);
  ok(H5Tset_cset(type.id(), H5T_CSET_UTF8), what);
  return type;
}

void write_attribute(hid_t object, const std::string& name, const AttributeValue& value, const std::string& file) {
  const std::string what = file + ": attribute " + name;
  const auto write = [&](hid_t space, hid_t stored, hid_t memory, const void* data) {
    const H5AttributeId a(ok(H5Acreate2(object, name.c_str(), stored, space, H5P_DEFAULT, H5P_DEFAULT), what));
    ok(H5Awrite(a.id(), memory, data), what);
  };
  const H5SpaceId scalar(ok(H5Screate(H5S_SCALAR), what));
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    write(scalar.id(), H5T_STD_I64LE, H5T_NATIVE_INT64, i);
  } else if (const auto* d = std::get_if<double>(&value)) {
    write(scalar.id(), H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, d);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    const auto type = string_type(s->size(), what);
    write(scalar.id(), type.id(), type.id(), s->c_str());
  } else {
    const auto& list = std::get<std::vector<std::int64_t>>(value);
    const hsize_t n = list.size();
    const H5SpaceId space(ok(H5Screate_simple(1, &n, nullptr), what));
    write(space.id(), H5T_STD_I32LE, H5T_NATIVE_INT64, list.data());
  }
}

H5DatasetId create_dataset(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& shape, bool fill,
                           const std::string& what) {
  const H5SpaceId space(ok(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), what));
  const H5PropertyId dcpl(ok(H5Pcreate(H5P_DATASET_CREATE), what));
  ok(H5Pset_layout(dcpl.id(), H5D_CONTIGUOUS), what);
  ok(H5Pset_alloc_time(dcpl.id(), H5D_ALLOC_TIME_EARLY), what);
  if (!fill) ok(H5Pset_fill_time(dcpl.id(), H5D_FILL_TIME_NEVER), what);
  ok(H5Pset_obj_track_times(dcpl.id(), false), what);
  return H5DatasetId(ok(H5Dcreate2(file, name, type, space.id(), H5P_DEFAULT, dcpl.id(), H5P_DEFAULT), what + ": " + name));
}

H5TypeId record_type(const std::string& what) {
  H5TypeId type(ok(H5Tcreate(H5T_COMPOUND, sizeof(Record)), what));
  ok(H5Tinsert(type.id(), "xxh3", offsetof(Record, xxh3), H5T_STD_U64LE), what);
  ok(H5Tinsert(type.id(), "status", offsetof(Record, status), H5T_STD_U32LE), what);
  ok(H5Tinsert(type.id(), "self", offsetof(Record, self), H5T_STD_U32LE), what);
  return type;
}

hid_t stored_type(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return H5T_STD_U8LE;
    case ElementType::u16:
      return H5T_STD_U16LE;
    case ElementType::i32:
      return H5T_STD_I32LE;
    case ElementType::f32:
      return H5T_IEEE_F32LE;
    default:
      throw base::Bug("a row dataset has an element type that parts do not use");
  }
}

void write_hdf5(const std::filesystem::path& path, const Manifest& m, std::int64_t index,
                std::span<const PlannedSample> samples) {
  const auto& part = m.parts.at(static_cast<std::size_t>(index));
  const auto tokens = static_cast<hsize_t>(part.tokens), n = static_cast<hsize_t>(part.n);
  std::vector<std::int64_t> row_offset{0}, sample_id;
  std::vector<Record> records;
  for (std::size_t j = 0; j < samples.size(); ++j) {
    const auto id = part.first + static_cast<std::int64_t>(j);
    row_offset.push_back(row_offset.back() + samples[j].n_tokens);
    sample_id.push_back(id);
    records.push_back(samples[j].reject == FailReason::none ? Record{} : failed_record(id, samples[j].reject));
  }

  const std::string what = "create " + path.string();
  const Hdf5Session session;
  const auto fapl = file_access();
  ok(H5Pset_libver_bounds(fapl.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), what);
  ok(H5Pset_alignment(fapl.id(), 1, 4096), what);
  const H5PropertyId fcpl(ok(H5Pcreate(H5P_FILE_CREATE), what));
  ok(H5Pset_obj_track_times(fcpl.id(), false), what);
  ok(H5Pset_attr_phase_change(fcpl.id(), 64, 48), what);  // attributes stay in the root's header
  H5FileId file(ok(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, fcpl.id(), fapl.id()), what));
  const H5GroupId root(ok(H5Gopen2(file.id(), "/", H5P_DEFAULT), what));
  for (const auto& [name, value] : part_attributes(m, index)) write_attribute(root.id(), name, value, path.string());

  const auto write_index = [&](const char* name, hid_t type, const std::vector<hsize_t>& shape, const void* data) {
    const auto d = create_dataset(file.id(), name, type, shape, true, what);
    ok(H5Dwrite(d.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), what + ": " + name);
  };
  const auto record = record_type(what);
  write_index("row_offset", H5T_STD_I64LE, {n + 1}, row_offset.data());
  write_index("sample_id", H5T_STD_I64LE, {n}, sample_id.data());
  write_index("state", record.id(), {n}, records.data());
  const auto rows = row_datasets(m.identity);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<hsize_t> shape{tokens};
    if (rows[i].width > 0) shape.push_back(static_cast<hsize_t>(rows[i].width));
    const auto d = create_dataset(file.id(), rows[i].name, stored_type(rows[i].type), shape, false, what);
    if (i == aux_rows || i == last_rows) {
      write_attribute(d.id(), "logical_dtype", dtype_name(m.identity.dtype), path.string());
      if (rows.size() > aux_scale_rows) {
        write_attribute(d.id(), "scale_dataset", std::string(rows[i == aux_rows ? aux_scale_rows : last_scale_rows].name),
                        path.string());
        write_attribute(d.id(), "scale_axis", std::int64_t{0}, path.string());
      }
    }
  }
  file.close(what);
}

/// Gives the file its blocks, so that a full disk shows here and not in the middle of the run. The C library's emulation is not
/// used: it writes a byte into every block.
void reserve(const base::File& file, std::int64_t bytes) {
  static std::atomic<bool> warned{false};
  for (;;) {
    const int fault = base::fault_point("store.reserve");
    if (fault == 0 && ::fallocate(file.fd(), 0, 0, bytes) == 0) return;
    const int e = fault != 0 ? fault : errno;
    if (e == EINTR) continue;
    if (e != EOPNOTSUPP && e != ENOSYS) base::throw_errno(e, fmt::format("reserve {} bytes for {}", bytes, file.path().string()));
    if (!warned.exchange(true))
      base::log_warning(fmt::format(
          "{}: this file system cannot reserve space; the store stays sparse, and a full disk will show only while writing",
          file.path().string()));
    return;
  }
}

}  // namespace

void create_part(const std::filesystem::path& store, Manifest& m, std::int64_t index, std::span<const PlannedSample> samples,
                 const PartInfo* promised) {
  auto& part = m.parts.at(static_cast<std::size_t>(index));
  const auto path = store / part.file;
  const auto tmp = std::filesystem::path(path.string() + ".tmp");
  try {
    write_hdf5(tmp, m, index, samples);
    auto file = base::open_file(tmp, O_RDWR);
    part.bytes = base::file_size(file);
    reserve(file, part.bytes);
    const auto layout = check_part(
        store, m, index, [](const std::string& text) { throw base::Bug("a new part is not as it should be: " + text); });
    part.meta_xxh3 = metadata_hash(file, layout, part.tokens, part.n);
    if (promised && (part.bytes != promised->bytes || part.meta_xxh3 != promised->meta_xxh3))
      throw base::RefusedError(
          fmt::format("{}: made again it is not what the manifest describes: {} bytes and {}, not {} and {}", path.string(),
                      part.bytes, part.meta_xxh3, promised->bytes, promised->meta_xxh3),
          "another version of HDF5 lays files out differently: use the one that made the store, or a new store");
    base::fsync_file(file);
    file.close();
    if (::rename(tmp.c_str(), path.c_str()) != 0) base::throw_errno(errno, "rename to " + path.string());
  } catch (...) {
    ::unlink(tmp.c_str());
    throw;
  }
}

}  // namespace aerie::io
