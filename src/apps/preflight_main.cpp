// SPDX-License-Identifier: Apache-2.0
// aerie-preflight: is this allocation fit to work? One rank per node.
#include <CLI/CLI.hpp>

#include "preflight_phase.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::PreflightFlags flags;
  apps::ProgramSpec spec;
  spec.name = "preflight";
  spec.description = "Checks that the nodes of this job can do a run's work; start one rank per node.";
  spec.lock = apps::ProgramSpec::Lock::none;
  spec.is_attempt = false;
  spec.add_options = [&](CLI::App& app) {
    app.add_option("--nodes", flags.nodes, "how many nodes there must be");
    app.add_option("--warning", flags.warning_s, "seconds before the end at which the job is warned (sbatch --signal)");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::preflight_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
