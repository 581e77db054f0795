// SPDX-License-Identifier: Apache-2.0
// The documented exit codes of all programs. This enum and its table are the source; docs/reference/exit-codes.md and
// `aerie explain-exit N` are made from them, and a test compares them with the job scripts.
#pragma once
#include <optional>
#include <span>
#include <string_view>

namespace aerie::base {

enum class ExitCode : int {
  done = 0,
  usage = 2,           // command line or configuration
  data = 65,           // bad input data, checksum mismatch, undecided failed samples
  missing_input = 66,  // a file, run or part is not there
  preflight = 69,      // node or GPU unfit
  bug = 70,            // our own code broke a promise
  io = 74,             // read, write or fsync failed
  stopped = 75,        // stopped safely after a commit or checkpoint: requeue me
  peer = 76,           // MPI, NCCL, CUDA or watchdog: a peer or device failed
  refused = 78,        // resume refused, run locked by another job, configuration changed
  no_progress = 93,    // crash loop: do not requeue
};

struct ExitCodeInfo {
  ExitCode code;
  std::string_view name;     // as in the enum
  std::string_view meaning;  // one sentence
  std::string_view batch;    // what the batch script does
  std::string_view next;     // what a person does next
};

/// Every code above, ascending.
std::span<const ExitCodeInfo> exit_code_table();

/// The row of `code`; also knows the launcher's own codes (1, 134, 137, 139, 143, 205). Nothing for other numbers.
std::optional<ExitCodeInfo> explain_exit(int code);

}  // namespace aerie::base
