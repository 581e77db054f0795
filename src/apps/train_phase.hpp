// SPDX-License-Identifier: Apache-2.0
// The train phase: what may be trained on, where to go on, the loop's reports.
#pragma once
#include <string>
#include <vector>

#include "run.hpp"

namespace aerie::apps {

struct TrainFlags {
  bool fresh = false, reset_attempts = false, strict = false;
  std::vector<std::string> allow_change;
  std::int64_t kill_at = -1;  // SIGKILL to every rank after this step
};
/// Exit code 0: finished; 75: stopped after a checkpoint; 65: a bad step under train.bad_step = "stop"; 74: a save failed; 78:
/// the store is not complete, no checkpoint verifies, the configuration changed, or --strict and the lead time is too short; 93:
/// three attempts without progress. Collective.
int train_phase(const ProgramContext& context, const TrainFlags& flags);

}  // namespace aerie::apps
