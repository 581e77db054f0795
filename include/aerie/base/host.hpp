// SPDX-License-Identifier: Apache-2.0
// Who and where this process is: host, boot, start time, Slurm job. Goes into ledger lines, locks and error messages.
#pragma once
#include <cstdint>
#include <string>

namespace aerie::base {

struct ProcessIdentity {
  std::string host;
  std::string boot_id;  // /proc/sys/kernel/random/boot_id
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  // field 22 of /proc/self/stat: tells a recycled pid apart
  std::string job;               // SLURM_JOB_ID, with array task; empty outside Slurm
  int restart_count = 0;         // SLURM_RESTART_COUNT
  /// Inode of /proc/self/ns/pid; 0 where the kernel does not say. In another namespace (a container beside us) the same pid is
  /// another process.
  std::int64_t pid_namespace = 0;
};
/// Of the machine itself: the kernel's constant for the first PID namespace.
constexpr std::int64_t initial_pid_namespace = 0xEFFFFFFC;
ProcessIdentity this_process();
std::int64_t own_pid_namespace();
/// For people, "pid 4711"; where the machine knows it by another number, "pid 7 in PID namespace 4026532501".
std::string pid_text(const ProcessIdentity& process);
std::string host_name();

/// "2026-01-31T12:00:00.123Z"
std::string utc_now();
double unix_now();

}  // namespace aerie::base
