// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/fault.hpp>

#ifdef AERIE_FAULTS
#include <aerie/base/error.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace aerie::base {
namespace {
struct Fault {
  std::string name, rank, action;
  long count = 1;
};
const Fault& chosen() {
  static const Fault fault = [] {
    Fault f;
    if (const char* text = std::getenv("AERIE_FAULT")) {
      std::istringstream in(text);
      std::string count;
      std::getline(in, f.name, ':');
      std::getline(in, f.rank, ':');
      std::getline(in, count, ':');
      std::getline(in, f.action, ':');
      f.count = std::atol(count.c_str());
    }
    return f;
  }();
  return fault;
}
std::string own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* v = std::getenv(name)) return v;
  return "0";
}
}  // namespace

int fault_point(const char* name) {
  const Fault& f = chosen();
  if (f.name != name) return 0;
  static const std::string rank = own_rank();
  if (f.rank != "*" && f.rank != rank) return 0;
  static std::atomic<long> passed{0};
  if (++passed != f.count) return 0;
  if (f.action == "kill") ::kill(::getpid(), SIGKILL);
  if (f.action == "exit") ::_exit(1);
  if (f.action == "stall") ::sleep(3600);
  if (f.action == "throw") throw IoError(std::string("fault point ") + name, "set by AERIE_FAULT");
  if (f.action == "enospc") return ENOSPC;
  if (f.action == "eio") return EIO;
  return 0;
}

}  // namespace aerie::base
#endif
