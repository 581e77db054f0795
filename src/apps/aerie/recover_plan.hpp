// SPDX-License-Identifier: Apache-2.0
// The fourth step of a recovery: what is missing, how long it will take at the last known rate, and in which phase the run goes
// on.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <aerie/config/config.hpp>
#include <aerie/report/ledger.hpp>

#include "recover_assess.hpp"
#include "recover_store.hpp"

namespace aerie::apps {

struct Plan {
  std::optional<report::Phase> phase;  // the first that is not done; nothing: all are
  std::vector<std::string> said;
  base::Json evidence;
};
/// `store`: what verifying it found; nothing when there is none.
Plan plan_resume(const config::Config& config, const Assessment& found, const std::optional<Mended>& store);

}  // namespace aerie::apps
