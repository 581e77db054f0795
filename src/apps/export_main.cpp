// SPDX-License-Identifier: Apache-2.0
// aerie-export: checkpoint -> directories that SGLang, vLLM and speculators load as they are.
#include <CLI/CLI.hpp>

#include "export_phase.hpp"
#include "run.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::ExportFlags flags;
  apps::ProgramSpec spec;
  spec.name = "export";
  spec.description = "Writes the newest checkpoint as directories for serving engines and checks what it wrote.";
  spec.add_options = [&](CLI::App& app) {
    app.add_option("--checkpoint", flags.checkpoint, "a checkpoint directory; default: the newest that verifies");
  };
  spec.body = [&](const apps::ProgramContext& context) { return apps::export_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
