// SPDX-License-Identifier: Apache-2.0
#include "mpio_part.hpp"

#include <fmt/format.h>

#include "hdf5_handle.hpp"

#ifdef H5_HAVE_PARALLEL
#include <mpi.h>
#endif

namespace aerie::io {

#ifdef H5_HAVE_PARALLEL

namespace {

hid_t memory_type(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return H5T_NATIVE_UINT8;
    case ElementType::u16:
      return H5T_NATIVE_UINT16;
    case ElementType::i32:
      return H5T_NATIVE_INT32;
    case ElementType::f32:
      return H5T_NATIVE_FLOAT;
    default:
      throw base::Bug("a row dataset has an element type that parts do not use");
  }
}

}  // namespace

struct MpioPart::Impl {
  std::string name;
  std::vector<RowDataset> rows;
  H5FileId file;
  std::vector<H5DatasetId> datasets;
  H5PropertyId transfer;
};

void MpioPart::demand_support() {
  int started = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (started) MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE)
    throw base::ConfigError("extract.write_mode = \"mpio\" needs MPI with MPI_THREAD_MULTIPLE, which this MPI does not give",
                            "use \"posix\": the files are the same");
}

MpioPart::MpioPart(const std::filesystem::path& path, const StoreIdentity& identity) : impl_(std::make_unique<Impl>()) {
  using base::IoError;
  auto& p = *impl_;
  p.name = path.string();
  p.rows = row_datasets(identity);
  const Hdf5Session session;
  const H5PropertyId access(check<IoError>(H5Pcreate(H5P_FILE_ACCESS), p.name));
  check<IoError>(H5Pset_fapl_mpio(access.id(), MPI_COMM_SELF, MPI_INFO_NULL), p.name);
  p.file = H5FileId(check<IoError>(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id()), p.name + ": open through MPI-IO"));
  for (const auto& r : p.rows)
    p.datasets.emplace_back(check<IoError>(H5Dopen2(p.file.id(), r.name, H5P_DEFAULT), p.name + ": " + r.name));
  p.transfer = H5PropertyId(check<IoError>(H5Pcreate(H5P_DATASET_XFER), p.name));
  check<IoError>(H5Pset_dxpl_mpio(p.transfer.id(), H5FD_MPIO_INDEPENDENT), p.name);
}

MpioPart::~MpioPart() {
  if (!impl_) return;
  const Hdf5Session session;
  impl_.reset();
}

void MpioPart::write(std::int64_t first_row, const StoredSample& sample) {
  using base::IoError;
  auto& p = *impl_;
  const auto pieces = sample.pieces();
  const Hdf5Session session;
  for (std::size_t i = 0; i < p.rows.size(); ++i) {
    const auto& r = p.rows[i];
    const std::string what = fmt::format("{}: {}: write rows from {}", p.name, r.name, first_row);
    const hsize_t start[2] = {static_cast<hsize_t>(first_row), 0};
    const hsize_t count[2] = {pieces[i].size() / static_cast<hsize_t>(r.row_bytes()), static_cast<hsize_t>(r.width)};
    const H5SpaceId there(check<IoError>(H5Dget_space(p.datasets[i].id()), what));
    check<IoError>(H5Sselect_hyperslab(there.id(), H5S_SELECT_SET, start, nullptr, count, nullptr), what);
    const H5SpaceId here(check<IoError>(H5Screate_simple(r.width > 0 ? 2 : 1, count, nullptr), what));
    check<IoError>(H5Dwrite(p.datasets[i].id(), memory_type(r.type), here.id(), there.id(), p.transfer.id(), pieces[i].data()),
                   what);
  }
}

void MpioPart::close() {
  const Hdf5Session session;
  for (auto& d : impl_->datasets) d.close(impl_->name + ": close");
  impl_->file.close(impl_->name + ": close");
}

#else

struct MpioPart::Impl {};

void MpioPart::demand_support() {
  throw base::ConfigError("extract.write_mode = \"mpio\" needs parallel HDF5, which this program was built without",
                          "use \"posix\": the files are the same");
}
MpioPart::MpioPart(const std::filesystem::path&, const StoreIdentity&) { demand_support(); }
MpioPart::~MpioPart() = default;
void MpioPart::write(std::int64_t, const StoredSample&) {}
void MpioPart::close() {}

#endif

}  // namespace aerie::io
