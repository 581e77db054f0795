// SPDX-License-Identifier: Apache-2.0
// Whether a stop fits between the warning and the end: it takes the rest of a step, a periodic save that is still running, and
// the final save.
#pragma once
#include <string>

namespace aerie::train {

constexpr const char* lead_time_hint =
    "ask for an earlier signal (#SBATCH --signal=B:USR2@SECONDS and AERIE_LEAD_SECONDS), or a faster file system";

/// What is wrong when 2 x save + step is more than `lead_s`; empty when it fits, or when `lead_s` is 0 (not known).
std::string lead_time_problem(double lead_s, double save_s, double step_s);

}  // namespace aerie::train
