// SPDX-License-Identifier: Apache-2.0
// aerie-train: store -> checkpoints.
#include <CLI/CLI.hpp>

#include "run.hpp"
#include "train_phase.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::TrainFlags flags;
  apps::ProgramSpec spec;
  spec.name = "train";
  spec.description = "Trains the drafter on the store; goes on from the newest checkpoint.";
  spec.add_options = [&](CLI::App& app) {
    app.add_flag("--fresh", flags.fresh, "start over; demands that no checkpoint is there");
    app.add_flag("--reset-attempts", flags.reset_attempts, "forget earlier attempts that made no progress");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::train_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
