// SPDX-License-Identifier: Apache-2.0
// Preflight: the checks before a phase, or the look at the GPUs' memory after one; the table, the record.
#pragma once
#include "run.hpp"

namespace aerie::apps {

struct PreflightFlags {
  std::int64_t nodes = 0, gpus = 0, ranks_per_node = 0;
  double warning_s = 0, min_bandwidth_gb = 0, clock_bound_s = 1, wait_s = 10;
  std::string phase;  // that comes
  std::string after;  // that has ended
  bool strict = false, quiet = false;
  std::string unfit;  // file that gets the names of unfit hosts
};
/// Exit code 0, or throws an Error with code 69 naming the first FAIL (with `strict`: or WARN) and what to do. Collective.
int preflight_phase(const ProgramContext& context, const PreflightFlags& flags);

}  // namespace aerie::apps
