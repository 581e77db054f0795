// SPDX-License-Identifier: Apache-2.0
#include "mpio_part.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <aerie/base/fault.hpp>

#include "hdf5_handle.hpp"

#ifdef H5_HAVE_PARALLEL
#include <mpi.h>
#endif

namespace aerie::io {

#ifdef H5_HAVE_PARALLEL

namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;  // a call; MPI-IO above 2 GiB is not to be trusted

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

MpioPart::MpioPart(const std::filesystem::path& path, const StoreIdentity& identity) {
  using base::IoError;
  const Hdf5Session session;  // before the ids: on an error they close while it lives
  auto impl = std::make_unique<Impl>();
  auto& p = *impl;
  p.name = path.string();
  p.rows = row_datasets(identity);
  const H5PropertyId access(check<IoError>(H5Pcreate(H5P_FILE_ACCESS), p.name));
  check<IoError>(H5Pset_fapl_mpio(access.id(), MPI_COMM_SELF, MPI_INFO_NULL), p.name);
  p.file = H5FileId(check<IoError>(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id()), p.name + ": open through MPI-IO"));
  for (const auto& r : p.rows)
    p.datasets.emplace_back(check<IoError>(H5Dopen2(p.file.id(), r.name, H5P_DEFAULT), p.name + ": " + r.name));
  p.transfer = H5PropertyId(check<IoError>(H5Pcreate(H5P_DATASET_XFER), p.name));
  check<IoError>(H5Pset_dxpl_mpio(p.transfer.id(), H5FD_MPIO_INDEPENDENT), p.name);
  impl_ = std::move(impl);
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
  if (const int e = base::fault_point("store.mpio_write")) base::throw_errno(e, p.name + ": write through MPI-IO");
  for (std::size_t i = 0; i < p.rows.size(); ++i) {
    const auto& r = p.rows[i];
    const auto rows = static_cast<std::int64_t>(pieces[i].size()) / r.row_bytes();
    const auto most = std::max<std::int64_t>(1, most_bytes / r.row_bytes());
    for (std::int64_t at = 0; at < rows; at += most) {
      const std::string what = fmt::format("{}: {}: write rows from {}", p.name, r.name, first_row + at);
      const hsize_t start[2] = {static_cast<hsize_t>(first_row + at), 0};
      const hsize_t count[2] = {static_cast<hsize_t>(std::min(most, rows - at)), static_cast<hsize_t>(r.width)};
      const H5SpaceId there(check<IoError>(H5Dget_space(p.datasets[i].id()), what));
      check<IoError>(H5Sselect_hyperslab(there.id(), H5S_SELECT_SET, start, nullptr, count, nullptr), what);
      const H5SpaceId here(check<IoError>(H5Screate_simple(r.width > 0 ? 2 : 1, count, nullptr), what));
      check<IoError>(H5Dwrite(p.datasets[i].id(), memory_type(r.type), here.id(), there.id(), p.transfer.id(),
                              pieces[i].data() + at * r.row_bytes()),
                     what);
    }
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
