// SPDX-License-Identifier: Apache-2.0
// The extract phase: plan and create the store, extract what is missing, record what failed, say whether the phase is complete.
#pragma once
#include "run.hpp"

namespace aerie::apps {

struct ExtractFlags {
  bool retry_failed = false;
  bool share = false;
};
/// Exit code 0: every sample is done, excluded by rule or decided, or with `share`: what is left is in parts that other jobs
/// hold; 65: undecided failures (named); 75: stopped safely. Collective.
int extract_phase(const ProgramContext& context, const ExtractFlags& flags);

}  // namespace aerie::apps
