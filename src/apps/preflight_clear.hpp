// SPDX-License-Identifier: Apache-2.0
// Before the checks: what dead attempts of this run left on the nodes of this job is ended, so that a node is not judged by it.
#pragma once
#include "run.hpp"

namespace aerie::apps {

/// One rank of each host looks and ends (leftovers.hpp has the rules); what was found goes into the ledger as evidence
/// "leftovers" and to stderr. Never throws for what it cannot end: the checks that follow tell. Collective over context.world.
void clear_nodes(const ProgramContext& context);

}  // namespace aerie::apps
