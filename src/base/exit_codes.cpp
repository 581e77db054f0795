// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/exit_codes.hpp>

#include <array>

namespace aerie::base {
namespace {
constexpr std::array<ExitCodeInfo, 11> table{{
    {ExitCode::done, "done", "Finished.", "exit 0; dependent jobs run", "nothing"},
    {ExitCode::usage, "usage", "The command line or the configuration is wrong.", "stop",
     "read the message; `--help` and `--print-config` show what is known"},
    {ExitCode::data, "data",
     "Input data is bad, a checksum does not match, a training step went bad, or failed samples wait for a decision.", "stop",
     "mend the named file, or record `aerie accept-missing`"},
    {ExitCode::missing_input, "missing_input", "A file, run, store or part is not there.", "stop", "check the named path"},
    {ExitCode::preflight, "preflight", "Preflight found a node or GPU unfit.", "stop", "exclude the named node or free its GPU"},
    {ExitCode::bug, "bug", "aerie broke a promise of its own.", "stop", "report the message with the log"},
    {ExitCode::io, "io", "Reading, writing or syncing a file failed; what was acknowledged before is safe.", "stop",
     "check space, quota and the file system, then run the same command again"},
    {ExitCode::stopped, "stopped", "Stopped safely after a commit or checkpoint.", "requeue, unless RUN/stop exists",
     "run the same command again: it goes on where it was"},
    {ExitCode::peer, "peer", "A peer process, MPI, NCCL or a GPU failed, or a step took too long.",
     "requeue while there is progress", "look for the first error in the log, then run the same command again"},
    {ExitCode::refused, "refused",
     "Refused: the run is in use by another job, no valid checkpoint is left, the configuration differs, or a stop takes too "
     "long.",
     "stop", "the message names the holder or the fields that differ"},
    {ExitCode::no_progress, "no_progress", "Three attempts in a row made no progress.", "stop",
     "repair the cause, then start with --reset-attempts"},
}};

constexpr std::array<ExitCodeInfo, 8> launcher_table{{
    {ExitCode{1}, "launcher", "Something died without a code of its own.", "requeue while there is progress", "see the log"},
    {ExitCode{134}, "launcher", "A process aborted (SIGABRT).", "requeue while there is progress", "see the log"},
    {ExitCode{137}, "launcher", "A process was killed (SIGKILL), often for memory.", "requeue while there is progress",
     "see the log and the node's memory"},
    {ExitCode{138}, "launcher", "A stop signal (SIGUSR1) met a program that was only just starting.", "requeue, as after 75",
     "nothing"},
    {ExitCode{139}, "launcher", "A process crashed (SIGSEGV).", "requeue while there is progress", "report it with the log"},
    {ExitCode{140}, "launcher", "A stop signal (SIGUSR2) met a program that was only just starting.", "requeue, as after 75",
     "nothing"},
    {ExitCode{143}, "launcher", "A process was ended (SIGTERM).", "requeue while there is progress", "see the log"},
    {ExitCode{205}, "launcher", "mpirun (Open MPI 4.1) lost a node.",
     "wait for Slurm's own requeue, then requeue while there is progress", "check the named node"},
}};
}  // namespace

std::span<const ExitCodeInfo> exit_code_table() { return table; }

std::optional<ExitCodeInfo> explain_exit(int code) {
  for (const auto& row : table)
    if (static_cast<int>(row.code) == code) return row;
  for (const auto& row : launcher_table)
    if (static_cast<int>(row.code) == code) return row;
  return std::nullopt;
}

}  // namespace aerie::base
