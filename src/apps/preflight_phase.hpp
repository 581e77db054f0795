// SPDX-License-Identifier: Apache-2.0
// Preflight: the checks, the table, the record.
#pragma once
#include "run.hpp"

namespace aerie::apps {

struct PreflightFlags {
  std::int64_t nodes = 0;
  double warning_s = 0;
};
/// Exit code 0, or throws an Error with code 69 naming the first failure and what to do. Collective.
int preflight_phase(const ProgramContext& context, const PreflightFlags& flags);

}  // namespace aerie::apps
