// SPDX-License-Identifier: Apache-2.0
#include "hdf5_handle.hpp"

namespace aerie::io {
namespace {

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t collect(unsigned, const H5E_error2_t* entry, void* out) {
  auto& text = *static_cast<std::string*>(out);
  if (!entry->desc || !*entry->desc) return 0;
  const std::string piece = std::string(entry->func_name ? entry->func_name : "?") + ": " + entry->desc;
  if (text.size() + piece.size() > 1000) return 0;
  if (!text.empty()) text += "; ";
  text += piece;
  return 0;
}

}  // namespace

Hdf5Session::Hdf5Session() : lock_(library_mutex()) {
  // Everything is closed by its owner. At exit the library would only complain about ids that it leaks itself on damaged files.
  static const herr_t no_exit_handler = H5dont_atexit();
  static_cast<void>(no_exit_handler);
  H5open();
  H5Eget_auto2(H5E_DEFAULT, &old_function_, &old_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}
Hdf5Session::~Hdf5Session() { H5Eset_auto2(H5E_DEFAULT, old_function_, old_data_); }

std::string take_hdf5_errors() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "HDF5 gave no reason" : "HDF5: " + text;
}

H5PropertyId file_access() {
  H5PropertyId fapl(check<base::IoError>(H5Pcreate(H5P_FILE_ACCESS), "HDF5 file access properties"));
  check<base::IoError>(H5Pset_fclose_degree(fapl.id(), H5F_CLOSE_STRONG), "HDF5 close degree");
#if H5_VERSION_GE(1, 10, 7)
  check<base::IoError>(H5Pset_file_locking(fapl.id(), false, true), "HDF5 file locking");
#endif
  return fapl;
}

}  // namespace aerie::io
