// SPDX-License-Identifier: Apache-2.0
// Owned HDF5 ids and checked HDF5 calls. HDF5 is used only inside an Hdf5Session: the library is not built thread-safe
// everywhere, so a session holds a process-wide lock; it also keeps the library from printing its errors. The error stack
// goes into the text of the exception instead.
#pragma once
#include <cstdint>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>

#include <hdf5.h>

#include <aerie/base/error.hpp>

namespace aerie::io {

/// Holds the lock and silences automatic error printing for as long as it lives. Not recursive.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t old_function_ = nullptr;
  void* old_data_ = nullptr;
};

/// The current error stack, innermost reason first, in one line; clears it.
std::string take_hdf5_errors();

/// Throws E with `what` and HDF5's error stack when `result` is negative; returns it otherwise.
template <class E = base::DataError, class R>
R check(R result, const std::string& what, std::source_location at = std::source_location::current()) {
  if (result < 0) throw E(what + ": " + take_hdf5_errors(), {}, at);
  return result;
}

/// Owner of one HDF5 id. Move-only; close() reports errors, the destructor does not.
template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) noexcept : id_(id) {}
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(Hdf5Handle&& o) noexcept : id_(std::exchange(o.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& o) noexcept {
    if (this != &o) {
      reset();
      id_ = std::exchange(o.id_, H5I_INVALID_HID);
    }
    return *this;
  }
  hid_t id() const noexcept { return id_; }
  void reset() noexcept {
    if (id_ >= 0) Close(std::exchange(id_, H5I_INVALID_HID));
  }
  template <class E = base::IoError>
  void close(const std::string& what) {
    if (id_ >= 0) check<E>(Close(std::exchange(id_, H5I_INVALID_HID)), what);
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using H5FileId = Hdf5Handle<H5Fclose>;
using H5PropertyId = Hdf5Handle<H5Pclose>;
using H5GroupId = Hdf5Handle<H5Gclose>;
using H5DatasetId = Hdf5Handle<H5Dclose>;
using H5SpaceId = Hdf5Handle<H5Sclose>;
using H5TypeId = Hdf5Handle<H5Tclose>;
using H5AttributeId = Hdf5Handle<H5Aclose>;
using H5ObjectId = Hdf5Handle<H5Oclose>;

/// File access properties for everything here: the default driver and no flock on the file, since nobody writes through HDF5
/// once a file has its final name, and some file systems have no flock.
H5PropertyId file_access();

}  // namespace aerie::io
