// SPDX-License-Identifier: Apache-2.0
// Is this allocation fit to work? Checks that need all ranks: layout, the run directory as every node sees it, file locks between
// nodes, one version everywhere, time enough. Changes nothing that stays.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/comm/comm.hpp>

namespace aerie::preflight {

struct Request {
  std::filesystem::path run;
  std::string version;                 // of this rank's program, as text that differs when the program does
  bool locks = true;                   // false: the run is configured to use none
  std::int64_t nodes = 0;              // expected number of hosts; 0: any
  std::optional<double> seconds_left;  // until the job's end, where known
  double warning_s = 0;                // the job is warned this long before its end (--signal)
};

struct Finding {
  std::string check;
  bool ok = true;
  std::string text;                // what was seen
  std::string advice;              // when it is not ok
  std::vector<std::string> hosts;  // that are at fault, when not all are
};

/// Every check, in order; the same findings on every rank. `poll` is called between checks, on every rank, and may throw on all
/// of them. Collective over `world`.
std::vector<Finding> examine(const comm::Comm& world, const Request& request, const std::function<void()>& poll);

bool all_ok(const std::vector<Finding>& findings);
std::string format_table(const std::vector<Finding>& findings);
base::Json to_json(const std::vector<Finding>& findings);

}  // namespace aerie::preflight
