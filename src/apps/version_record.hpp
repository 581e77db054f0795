// SPDX-License-Identifier: Apache-2.0
// What this program was built with and what it loaded: for `--version [--json]` and the ledger's attempt lines.
#pragma once
#include <string>

#include <aerie/base/json.hpp>

namespace aerie::apps {

/// {"version", "revision", "compiler", "libraries": {"mpi": {"compiled", "loaded"}, "hdf5": ..., "xxhash": ...}}. Starts no MPI.
base::Json version_record();
/// For people; one line a library, with a warning where compiled and loaded differ.
std::string format_version(const std::string& program, const base::Json& record);

}  // namespace aerie::apps
