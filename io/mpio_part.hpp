// SPDX-License-Identifier: Apache-2.0
// A part's rows through parallel HDF5: independent transfers of disjoint hyperslabs on MPI_COMM_SELF. Each H5Dwrite is one
// pwrite at the exact offset; HDF5 changes no metadata. The caller makes the bytes durable through a descriptor of its own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>

#include "row_data.hpp"

namespace aerie::io {

class MpioPart {
 public:
  /// Throws ConfigError when HDF5 is not parallel or MPI was not started with MPI_THREAD_MULTIPLE (the writer is a thread).
  static void demand_support();
  /// Throws IoError.
  MpioPart(const std::filesystem::path& path, const StoreIdentity& identity);
  ~MpioPart();
  MpioPart(const MpioPart&) = delete;
  MpioPart& operator=(const MpioPart&) = delete;
  /// Rows from `first_row` on. Throws IoError.
  void write(std::int64_t first_row, const StoredSample& sample);
  /// Throws IoError.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::io
