// SPDX-License-Identifier: Apache-2.0
// aerie-preflight: is this allocation fit to work? One rank per node, or per GPU.
#include <CLI/CLI.hpp>

#include "preflight_phase.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::PreflightFlags flags;
  apps::ProgramSpec spec;
  spec.name = "preflight";
  spec.description =
      "Ends what dead attempts of the run left on the nodes of this job, and checks that these can do its work; start one rank "
      "per node, or per GPU.";
  spec.lock = apps::ProgramSpec::Lock::none;
  spec.is_attempt = false;
  spec.add_options = [&](CLI::App& app) {
    app.add_option("--nodes", flags.nodes, "how many nodes there must be");
    app.add_option("--gpus", flags.gpus, "how many GPUs each node must have");
    app.add_option("--warning", flags.warning_s, "seconds before the end at which the job is warned (sbatch --signal)");
    app.add_option("--phase", flags.phase, "the phase that comes (extract, train ...): its space and memory are asked for");
    app.add_option("--ranks-per-node", flags.ranks_per_node, "ranks that the phase will start on a node");
    app.add_option("--min-bandwidth", flags.min_bandwidth_gb,
                   "GB/s that a sum between two nodes must reach (default: half of the median)");
    app.add_option("--clock-bound", flags.clock_bound_s, "seconds that the nodes' clocks may be apart");
    app.add_option("--unfit", flags.unfit, "file for the names of unfit hosts, when all trouble is theirs alone");
    app.add_flag("--strict", flags.strict, "a WARN ends with 69 too");
    app.add_option("--after", flags.after, "the phase that has ended: only measures whether the GPUs' memory is free again");
    app.add_flag("--quiet", flags.quiet, "with --after: no table");
    app.add_option("--wait", flags.wait_s, "with --after: seconds that the driver is given to free it");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::preflight_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
