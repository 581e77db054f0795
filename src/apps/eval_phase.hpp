// SPDX-License-Identifier: Apache-2.0
// The eval phase: evaluation samples through the target and both drafters (untrained, trained) -> RUN/eval.json.
#pragma once
#include <cstdint>
#include <string>

#include "run.hpp"

namespace aerie::apps {

struct EvalFlags {
  std::string checkpoint;
  bool no_initial = false;
  std::int64_t limit = 0;
};
/// Collective.
int eval_phase(const ProgramContext& context, const EvalFlags& flags);

}  // namespace aerie::apps
