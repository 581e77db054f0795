// SPDX-License-Identifier: Apache-2.0
// Processes of this machine as /proc shows them: whose they are, who started them (unit, container, Slurm job), what they wait
// for, and how to end one without ever meeting another that got its number. What another user's process hides stays empty.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aerie::node {

struct Process {
  std::int64_t pid = 0, parent = 0;
  std::int64_t start_ticks = 0;  // field 22 of /proc/PID/stat, clock ticks since boot: with the pid, one process for ever
  char state = '?';              // R, S, D, T, Z ... as ps shows it
  std::int64_t uid = 0;          // effective
  std::string user;              // its name, else the number
  std::vector<std::string> arguments;
  std::string command;    // the arguments joined, or [name] where there are none; for people
  std::string cgroup;     // path
  std::string unit;       // systemd unit that it was started by, "vllm.service"
  std::string container;  // "docker 0123456789ab", "podman ...", "kubernetes ..."
  std::string job;        // Slurm job of its cgroup, else of its environment
  bool exists() const { return state != 'Z' && state != 'X'; }  // more than an exit code
};

/// Of this PID namespace. Nothing when there is no such process. Zombies are shown, with state 'Z'.
std::optional<Process> look_at(std::int64_t pid);
/// A process as a record names it, of this host and boot.
struct Recorded {
  std::int64_t pid = 0, start_ticks = 0;
  std::int64_t pid_namespace = 0;  // as in base::ProcessIdentity; 0: an older record, taken for this namespace
};
/// hidden: it may live or not. It was in another PID namespace (a container beside us), where its number is nobody's or somebody
/// else's here; or /proc does not show what has its number (hidepid, a /proc of another namespace).
enum class Sight { there, gone, hidden };
struct Found {
  Sight sight = Sight::hidden;
  Process process;  // when it is there
};
/// Is that process alive? Only `gone` says that it is not: its number is free, or another's by now, or it has ended unreaped.
Found find(const Recorded& recorded);

/// All of this PID namespace, by pid.
std::vector<Process> all_processes();

/// NVML tells pids of the host. Not so in a PID namespace of one's own: there the same number is another process, and none of the
/// driver's may be looked up. (A library that AERIE_NVML names is taken at its word.)
bool sees_pids_of_the_driver();

/// The command with which a person ends it for good: `systemctl stop vllm.service`, `docker stop 0123456789ab`, `scancel 12`,
/// `kill 4711`.
std::string how_to_stop(const Process& process);

/// What it waits for, "D (waiting in the kernel, not to be interrupted) in fuse_wait": its state and, where the kernel says so,
/// the function it sleeps in; of a process with threads, its first one. Empty when there is no such process.
std::string waits_for(std::int64_t pid);

/// The run directory that an aerie program was started with, absolute and without links; empty when it is none, or when that
/// cannot be told (another user's, without root).
std::string run_directory_of(const Process& process);

/// Paths of the files it has open, sorted, each once; empty where that may not be seen.
std::vector<std::string> open_files(std::int64_t pid);

/// ended, killed: by TERM, by KILL. gone: it was not there any more, its pid is free or somebody else's. survived: it outlived
/// even KILL for 10 s, for it hangs in the kernel. refused: a signal was.
enum class Ending { ended, killed, gone, survived, refused };
struct End {
  Ending ending = Ending::gone;
  std::string why;  // of a refusal
};
/// How each of `processes` (pid and start_ticks count) ended. All get TERM at once, and those that are left after one common
/// `grace_s` KILL: however many are deaf, it takes no longer than for one. Each identity is looked at after a handle is open,
/// so that a recycled pid cannot be met.
std::vector<End> end_processes(const std::vector<Process>& processes, double grace_s);

}  // namespace aerie::node
