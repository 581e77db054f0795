// SPDX-License-Identifier: Apache-2.0
#include "version_record.hpp"

#include <aerie/base/version.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <hdf5.h>
#include <mpi.h>
#include <xxhash.h>

namespace aerie::apps {
namespace {
base::Json mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int n = 0;
  MPI_Get_library_version(text, &n);  // one of the few calls that are allowed before MPI_Init
  std::string loaded(text, static_cast<std::size_t>(std::max(0, n)));
  loaded = loaded.substr(0, loaded.find_first_of(",\n"));
#ifdef OMPI_MAJOR_VERSION
  const auto compiled = fmt::format("Open MPI v{}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  const auto compiled = fmt::format("MPICH Version:\t{}", MPICH_VERSION);
#else
  const auto compiled = fmt::format("MPI {}.{}", MPI_VERSION, MPI_SUBVERSION);
#endif
  return {{"compiled", compiled}, {"loaded", loaded}};
}
base::Json hdf5() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {{"compiled", fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE)},
          {"loaded", fmt::format("{}.{}.{}", major, minor, release)}};
}
base::Json xxhash() {
  const auto dotted = [](unsigned v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); };
  return {{"compiled", dotted(XXH_VERSION_NUMBER)}, {"loaded", dotted(XXH_versionNumber())}};
}
}  // namespace

base::Json version_record() {
  return {{"version", base::version()},
          {"revision", base::git_revision()},
          {"compiler", base::compiler()},
          {"libraries", {{"mpi", mpi()}, {"hdf5", hdf5()}, {"xxhash", xxhash()}}}};
}

std::string format_version(const std::string& program, const base::Json& record) {
  std::string out = fmt::format("{} {} ({})\ncompiler {}\n", program, record.at("version").get<std::string>(),
                                record.at("revision").get<std::string>(), record.at("compiler").get<std::string>());
  for (const auto& [name, v] : record.at("libraries").items()) {
    const auto compiled = v.at("compiled").get<std::string>(), loaded = v.at("loaded").get<std::string>();
    out +=
        fmt::format("{} {}{}\n", name, loaded, compiled == loaded ? "" : fmt::format(" (warning: compiled with {})", compiled));
  }
  return out;
}

}  // namespace aerie::apps
