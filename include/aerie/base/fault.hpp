// SPDX-License-Identifier: Apache-2.0
// Fault points for crash tests. Empty unless built with AERIE_FAULTS=ON; then AERIE_FAULT=name:rank:count:action picks one:
// the count-th time that rank `rank` (or * for any) passes point `name`, it does `action`:
//   kill (SIGKILL), exit (exit code 1 at once), throw (IoError), stall (sleeps 3600 s), enospc, eio (errno of the wrapped call).
// Rank comes from OMPI_COMM_WORLD_RANK, PMIX_RANK or SLURM_PROCID.
#pragma once

namespace aerie::base {

#ifdef AERIE_FAULTS
/// Returns 0, or the errno that the wrapped call should pretend to have failed with.
int fault_point(const char* name);
#else
inline int fault_point(const char*) { return 0; }
#endif

}  // namespace aerie::base
