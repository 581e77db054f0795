// SPDX-License-Identifier: Apache-2.0
// Communicators. `Comm` is one communicator, owned or borrowed; `Comm::solo()` is a communicator of one process that makes
// no MPI call, so that code written for many ranks also runs in programs that never start MPI.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include <aerie/base/error.hpp>

namespace aerie::comm {

/// Throws PeerError with MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, std::source_location at = std::source_location::current());

class Comm {
 public:
  /// Takes over `c` and frees it. `c`'s error handler is set to MPI_ERRORS_RETURN.
  static Comm own(MPI_Comm c);
  /// Uses `c`, which must outlive this object.
  static Comm borrow(MPI_Comm c);
  /// One process, no MPI: every collective below is a local no-op.
  static Comm solo();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_root() const noexcept { return rank_ == 0; }
  /// MPI_COMM_NULL for solo().
  MPI_Comm get() const noexcept;

  // All of these are collective over this communicator.
  void barrier() const;
  std::int64_t sum(std::int64_t value) const;
  std::int64_t max(std::int64_t value) const;
  std::int64_t min(std::int64_t value) const;
  /// In place, exact (integers). Chunked, so that counts above 2^31 work.
  void sum(std::span<std::int64_t> values) const;
  /// In place; every rank ends with root's bytes. Sizes must agree.
  void broadcast(std::span<std::byte> bytes, int root = 0) const;
  std::string broadcast(const std::string& text, int root = 0) const;
  std::int64_t broadcast(std::int64_t value, int root = 0) const;
  /// Every rank's text, by rank, on every rank.
  std::vector<std::string> all_gather(const std::string& mine) const;
  std::vector<std::int64_t> all_gather(std::int64_t mine) const;
  /// All values of all ranks, rank after rank; counts may differ.
  std::vector<std::int64_t> all_gather(std::span<const std::int64_t> mine) const;
  /// The ranks that share this one's host, ordered as here.
  Comm split_by_host() const;

 private:
  struct Handle;
  Comm(std::shared_ptr<Handle> handle, int rank, int size) : handle_(std::move(handle)), rank_(rank), size_(size) {}
  std::shared_ptr<Handle> handle_;
  int rank_ = 0, size_ = 1;
};

/// Starts MPI (asks for MPI_THREAD_MULTIPLE, which only parallel HDF5 in a writer thread needs; MPI_THREAD_FUNNELED will do) and
/// ends it; while an exception unwinds MPI_Finalize is not called, for peers would
/// wait for it.
class Environment {
 public:
  Environment(int& argc, char**& argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  Comm world() const;
  /// Ends all ranks with `code`. Does not return.
  [[noreturn]] static void abort(int code);
  static std::string library_version();

 private:
  int exceptions_;
};

}  // namespace aerie::comm
