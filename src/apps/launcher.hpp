// SPDX-License-Identifier: Apache-2.0
// How a program of ours is started on several ranks: run.launcher, and the environment that its ranks need.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <aerie/config/config.hpp>

namespace aerie::apps {

/// The launcher's words for `ranks` ranks, empty for one. `run.launcher` may hold flags of its own: "srun --mpi=pmix".
std::vector<std::string> launcher_words(const config::Config& config, int ranks);

/// What is set for the children unless it is set already.
std::map<std::string, std::string> launcher_environment(int ranks);

}  // namespace aerie::apps
