// SPDX-License-Identifier: Apache-2.0
// aerie-extract: target forward over the samples that are missing -> store.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "extract_phase.hpp"
#include "run.hpp"
#include "store_view.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  apps::ExtractFlags flags;
  apps::ProgramSpec spec;
  spec.name = "extract";
  spec.description = "Runs the target over the samples that the store does not hold yet.";
  spec.lock = apps::ProgramSpec::Lock::shared;  // several extract jobs may share a store; parts are leased one by one
  spec.add_options = [&](CLI::App& app) {
    app.add_flag("--retry-failed", flags.retry_failed, "set samples that failed at extraction back to pending first");
    app.add_flag("--share", flags.share,
                 "one of several jobs on one store: take parts one by one, leave leased ones to the others");
  };
  spec.done_so_far = [](const config::Config& c) { return apps::samples_settled(c); };
  spec.body = [&](const apps::ProgramContext& context) { return apps::extract_phase(context, flags); };
  return apps::run_mpi_program(argc, argv, spec);
}
