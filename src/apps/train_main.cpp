// SPDX-License-Identifier: Apache-2.0
// aerie-train: store -> checkpoints.
#include <CLI/CLI.hpp>

#include "run.hpp"
#include "train_phase.hpp"
#include "train_prove.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  if (apps::asks_for_proof(argc, argv)) return apps::prove_main(argc, argv);
  apps::TrainFlags flags;
  apps::ProveFlags unused;  // for --help
  apps::ProgramSpec spec;
  spec.name = "train";
  spec.description = "Trains the drafter on the store; goes on from the newest checkpoint.";
  spec.add_options = [&](CLI::App& app) {
    apps::add_prove_options(app, unused);
    app.add_flag("--fresh", flags.fresh, "start over; demands that no checkpoint is there");
    app.add_flag("--reset-attempts", flags.reset_attempts, "forget earlier attempts that made no progress");
    app.add_flag("--strict", flags.strict, "refuse to train when a save does not fit between the warning signal and the end");
    app.add_option("--allow-change", flags.allow_change, "a configuration key that may differ from the checkpoint's")
        ->delimiter(',');
    app.add_option("--kill-at", flags.kill_at, "SIGKILL every rank after this step: a drill of an unwarned death");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::train_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
