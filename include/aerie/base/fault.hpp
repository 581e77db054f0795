// SPDX-License-Identifier: Apache-2.0
// Fault points for crash tests. Empty unless built with AERIE_FAULTS=ON (the default where tests are built); then
// AERIE_FAULT=name:rank:count:action[,name:rank:count:action...] chooses what happens at which point.
//   rank    number, or * for any; taken from OMPI_COMM_WORLD_RANK, PMIX_RANK or SLURM_PROCID, else 0
//   count   N: at the N-th pass; N+: at the N-th and all later ones (*: 1+); every-N: at each N-th; random-N-SEED: about once in
//   N passes action  kill (SIGKILL), exit (exit code 1 at once), throw (IoError), stall (says so on stderr, sleeps until a signal
//           comes, at most 3600 s), slow (2 s, signals or not);
//           eio, enospc, eintr, eopnotsupp: the wrapped call fails with that errno;
//           one, half, zero: a transfer moves 1 byte, half, nothing; skip: the call is left out and reported as done
// Of several at one point the first that strikes acts; each counts all passes. A malformed text, and an action that the point
// cannot take, throw Bug.
#pragma once
#include <cstddef>
#include <cstdint>

namespace aerie::base {

/// What the wrapped call should pretend.
struct FaultOutcome {
  int error = 0;                 // to have failed with this errno
  bool skip = false;             // to have worked, without doing anything
  std::size_t limit = SIZE_MAX;  // to have moved no more than this many bytes
};

#ifdef AERIE_FAULTS
/// A point without a transfer. Returns 0, or the errno that the wrapped call should pretend to have failed with.
int fault_point(const char* name);
/// A point around one call that moves `bytes` bytes (0: it moves none, as fsync).
FaultOutcome fault_call(const char* name, std::size_t bytes = 0);
#else
inline int fault_point(const char*) { return 0; }
inline FaultOutcome fault_call(const char*, std::size_t = 0) { return {}; }
#endif

}  // namespace aerie::base
