// SPDX-License-Identifier: Apache-2.0
// How a program's ranks end together: the one line that is printed, the one code that all return.
#pragma once
#include <functional>

#include <aerie/comm/comm.hpp>

#include "outcome.hpp"

namespace aerie::apps {

/// The lowest failing rank's outcome, else 75 if any rank stopped, else 0: the same on all ranks. Prints the error line once.
/// When this rank failed and the others do not come within `abort_after_s`, prints it, calls `before_abort` and then MPI_Abort.
/// Collective over `world`, which must be used for nothing else.
Outcome end_together(const comm::Comm& world, const Outcome& mine, double abort_after_s,
                     const std::function<void()>& before_abort);

}  // namespace aerie::apps
