// SPDX-License-Identifier: Apache-2.0
// Saves one checkpoint and ends with the code of what happened; crash.cpp kills it on the way.
//   ckpt_crash_program ROOT STEP solo|mpi|unprotected CODES
// CODES: each rank leaves its exit code in CODES.RANK. `unprotected` is the control: data and manifest straight under the
// published name.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"

namespace base = aerie::base;
namespace ckpt = aerie::ckpt;

namespace {
void save_unprotected(const std::filesystem::path& root, std::int64_t step, const aerie::test::Vectors& vectors) {
  // As a program without the protocol would: the parts appear under the final name one by one.
  const auto elsewhere = root.parent_path() / "elsewhere";
  const auto whole = ckpt::save(aerie::comm::Comm::solo(), aerie::test::make_request(elsewhere, step, vectors)).path;
  const auto target = root / whole.filename();
  std::filesystem::create_directories(target);
  std::filesystem::copy_file(whole / "MANIFEST.json", target / "MANIFEST.json");
  base::fault_point("control.between");
  std::filesystem::copy_file(whole / "chunk-0000.bin", target / "chunk-0000.bin");
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::filesystem::path root = argv[1];
  const std::int64_t step = std::atoll(argv[2]);
  const std::string mode = argv[3];
  std::optional<aerie::comm::Environment> mpi;
  if (mode == "mpi") mpi.emplace(argc, argv);
  const auto comm = mpi ? mpi->world() : aerie::comm::Comm::solo();
  int code = 0;
  try {
    const auto vectors = aerie::test::make_vectors(static_cast<std::uint64_t>(step));
    if (mode == "unprotected") {
      save_unprotected(root, step, vectors);
    } else {
      ckpt::save(comm, aerie::test::make_request(root, step, vectors, comm.rank(), comm.size()));
      if (comm.is_root()) ckpt::apply_retention(root, 2, 0, -1);
    }
  } catch (const base::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    code = static_cast<int>(e.code());
  }
  std::ofstream(std::string(argv[4]) + "." + std::to_string(comm.rank())) << code;
  comm.barrier();
  return mpi ? 0 : code;  // a launcher takes seconds over a code that is not 0; the files tell
}
