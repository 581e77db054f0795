// SPDX-License-Identifier: Apache-2.0
// The frame of every MPI program: signal handlers, MPI, options, configuration, lock, ledger, and one way to end. A main is
// `return apps::run_mpi_program(argc, argv, {...})`; its body is called on every rank and returns an exit code or throws.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include <aerie/comm/comm.hpp>
#include <aerie/config/config.hpp>
#include <aerie/report/ledger.hpp>
#include <aerie/report/status.hpp>
#include <aerie/stop/stop_token.hpp>

namespace CLI {
class App;
}

namespace aerie::apps {

struct ProgramContext {
  const config::Config& config;
  const comm::Comm& world;
  stop::StopToken& stop;
  report::Ledger& ledger;      // used on rank 0 only
  std::int64_t attempt = 0;    // the same on all ranks
  report::StatusFile& status;  // used on rank 0 only
  bool json = false;           // --json was given
  base::Json& end_details;     // goes into the attempt's end line (rank 0's): "progress", "done", ...
};

/// Ends all ranks with 75 when any of them has seen a stop. `doing` says what was interrupted. Collective over world.
void end_if_stopped(const ProgramContext& context, const std::string& doing);

struct ProgramSpec {
  std::string name;         // "train": the program is aerie-train
  std::string description;  // one line, for --help
  enum class Lock { exclusive, shared, none } lock = Lock::exclusive;
  std::function<void(CLI::App&)> add_options = {};  // flags of this program alone
  /// Work done so far, for the begin line and so for the no-progress guard. Called on rank 0.
  std::function<std::optional<std::int64_t>(const config::Config&)> done_so_far = {};
  bool is_attempt = true;  // false: leaves no lines in the ledger and no resolved.json
  std::function<int(const ProgramContext&)> body;
};

/// Collective over all ranks; every rank returns the same code. What is thrown on all ranks, or after which all ranks still
/// arrive here, ends with one line `error: rank 3 gpu07: <what> (<hint>)` and the lowest failing rank's code. When the others do
/// not arrive within `AERIE_ABORT_AFTER` seconds (default 10) they are taken to be inside a collective, and MPI_Abort ends them.
int run_mpi_program(int argc, char** argv, const ProgramSpec& spec);

}  // namespace aerie::apps
