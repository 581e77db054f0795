// SPDX-License-Identifier: Apache-2.0
// Is this allocation fit to work? Checks of each node, of the network between them and of the run directory as all of them see
// it; and, after a phase, whether the GPUs' memory is free again. Changes nothing that stays (docs/reference/preflight.md).
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/node/resources.hpp>

namespace aerie::preflight {

enum class Result { pass, warn, fail };
std::string_view result_name(Result result);  // "PASS", "WARN", "FAIL"

/// One way of adding up integers between ranks, timed: MPI's, or NCCL's.
class Network {
 public:
  virtual ~Network() = default;
  /// In place; the seconds that it took, copies from and to `values` left out. Collective over what it was opened for.
  virtual double sum(std::span<std::int64_t> values) = 0;
};
/// Collective over the communicator. Throws Error on every rank of it when one cannot; null, on every rank, where it is not meant
/// to work: NCCL among ranks that share a GPU.
using OpenNetwork = std::function<std::unique_ptr<Network>(const comm::Comm&)>;
OpenNetwork mpi_network();

/// What the coming phase asks of a node. Zeros: nothing is known.
struct Needs {
  std::string phase;              // "extract"; empty: none is named
  std::int64_t disk_bytes = 0;    // still to be written to the run directory
  std::string disk_what;          // "3 checkpoints of 2.1 GiB"
  std::int64_t memory_bytes = 0;  // host memory of one rank: without it the phase ends
  std::int64_t cached_bytes = 0;  // read again and again: with less memory than this the phase is slow
  std::int64_t ranks_per_node = 1;
};

struct Limits {
  double min_bandwidth = 0;                             // bytes/s of a sum between two nodes
  double slow = 0.5;                                    // a node below this share of the median bandwidth is told
  double clock_s = 1;                                   // between any two nodes
  std::int64_t idle_gpu_bytes = std::int64_t{1} << 30;  // of a GPU, held by nobody that is known
  double log_hours = 24;                                // older errors in the kernel log are warnings
  std::int64_t network_bytes = std::int64_t{8} << 20;   // of one sum
};

/// What tests put in place of this machine.
struct Rehearsal {
  std::string host;                          // empty: its name
  std::optional<node::Resources> resources;  // of this rank's host
  std::filesystem::path kernel_log = "/dev/kmsg";
  double clock_offset_s = 0;                           // added to this rank's clock
  std::chrono::milliseconds delay{0};                  // before each of this rank's sums is done
  std::function<void(std::span<std::int64_t>)> spoil;  // what this rank gets
};

/// Of this rank; everything but versions, time left and rehearsal is the same on all.
struct Request {
  std::filesystem::path run;
  std::string version;                           // of the program, as text that differs when the program does
  std::map<std::string, std::string> libraries;  // that programs load here: name, version or file
  std::string recover_command;                   // ends what dead attempts of this run left: "aerie recover RUN"
  bool locks = true;                             // false: the run is configured to use none
  std::int64_t nodes = 0;                        // expected number of hosts; 0: any
  std::int64_t gpus = 0;                         // expected on each node; 0: any number, but the same on all
  std::optional<double> seconds_left;            // until the job's end, where known
  double warning_s = 0;                          // the job is warned this long before its end (--signal)
  Needs needs;
  Limits limits;
  OpenNetwork gpu_network;     // NCCL; null: not in this build
  std::set<std::string> only;  // checks by name; empty: all
  Rehearsal rehearsal;
};

struct Finding {
  std::string check;
  Result result = Result::pass;
  std::vector<std::string> seen;              // lines for people, the worst first
  std::string advice;                         // when it is not PASS
  std::vector<std::string> hosts;             // at fault, when not all are
  base::Json details = base::Json::object();  // numbers for programs, by check
};

/// Every check, in order; the same findings on every rank. `poll` is called before each check with its name, on every rank, and
/// may throw on all of them. Fault points: "preflight." and the check's name. Collective over `world`.
std::vector<Finding> examine(const comm::Comm& world, const Request& request, const std::function<void(std::string_view)>& poll);

/// After a phase: is the memory of this job's GPUs free again? Waits up to `wait_s` for the driver to give it back. One finding,
/// "gpu-memory", whose details are the evidence that belongs into the ledger; PASS, and `nodes` empty, where there are no GPUs.
/// Collective over `world`.
Finding examine_after(const comm::Comm& world, const Request& request, double wait_s, const std::function<void()>& poll);

Result worst(const std::vector<Finding>& findings);
std::string format_table(const std::vector<Finding>& findings);
base::Json to_json(const std::vector<Finding>& findings);

}  // namespace aerie::preflight
