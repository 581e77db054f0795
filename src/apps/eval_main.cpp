// SPDX-License-Identifier: Apache-2.0
// aerie-eval: acceptance of the drafter on conversations it was not trained on.
#include <CLI/CLI.hpp>

#include "eval_phase.hpp"
#include "run.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::EvalFlags flags;
  apps::ProgramSpec spec;
  spec.name = "eval";
  spec.description = "Measures per-step match and chain acceptance of the newest checkpoint and of the untrained drafter.";
  spec.add_options = [&](CLI::App& app) {
    app.add_option("--checkpoint", flags.checkpoint, "a checkpoint directory; default: the newest that verifies");
    app.add_flag("--no-initial", flags.no_initial, "leave the untrained drafter out");
    app.add_option("--limit", flags.limit, "evaluate only so many samples");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::eval_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
