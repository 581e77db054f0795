// SPDX-License-Identifier: Apache-2.0
// The train phase: what may be trained on, where to go on, the loop's reports.
#pragma once
#include "run.hpp"

namespace aerie::apps {

struct TrainFlags {
  bool fresh = false, reset_attempts = false;
};
/// Exit code 0: finished; 75: stopped after a checkpoint; 78: the store is not complete, no checkpoint verifies, or the
/// configuration changed; 93: three attempts without progress. Collective.
int train_phase(const ProgramContext& context, const TrainFlags& flags);

}  // namespace aerie::apps
