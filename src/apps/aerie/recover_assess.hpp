// SPDX-License-Identifier: Apache-2.0
// The first step of a recovery: what happened, and what the records say has survived. Reads only.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <aerie/config/config.hpp>
#include <aerie/node/gpu.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::apps {

struct Assessment {
  report::RunState state;
  std::map<std::int64_t, std::string> over;  // attempts that are over, and why (leftovers.hpp)
  node::GpuView gpus;                        // of this host
  std::optional<std::int64_t> checkpoint;    // newest step that opens
  std::vector<std::string> said;             // for people
  base::Json evidence;
};
Assessment assess(const config::Config& config);

}  // namespace aerie::apps
