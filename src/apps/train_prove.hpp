// SPDX-License-Identifier: Apache-2.0
// `aerie-train --prove N`: the promise of training, tried on the user's own machine. Starts MPI in children only.
#pragma once
#include <filesystem>
#include <vector>

namespace CLI {
class App;
}

namespace aerie::apps {

struct ProveFlags {
  std::int64_t steps = 0;         // 0: not asked for
  std::vector<int> ranks{1, 2};   // of the straight and the killed run; of the other one
  std::filesystem::path scratch;  // empty: RUN/prove-PID
  bool keep = false;
};
void add_prove_options(CLI::App& app, ProveFlags& flags);

/// True when the command line asks for a proof: known before MPI is started.
bool asks_for_proof(int argc, const char* const* argv);

/// Trains N steps three times in a scratch directory: straight; killed by SIGKILL after step K and started again; on another rank
/// count. Prints the SHA-256 of weights and moments and of the sample order of each, and PROVED (0) or DIFFERENT (70).
int prove_main(int argc, char** argv);

}  // namespace aerie::apps
