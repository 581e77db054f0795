// SPDX-License-Identifier: Apache-2.0
// A program made with the wrapper; `--act` says what its body does, `--on` on which rank (-1: all).
#include "run.hpp"

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <aerie/base/error.hpp>
#include <aerie/comm/agree.hpp>

int main(int argc, char** argv) {
  using namespace aerie;
  std::string act = "nothing";
  int on = -1;
  apps::ProgramSpec spec;
  spec.name = "train";
  spec.description = "for tests of the wrapper";
  spec.add_options = [&](CLI::App& app) {
    app.add_option("--act", act);
    app.add_option("--on", on);
  };
  spec.body = [&](const apps::ProgramContext& c) {
    const bool me = on < 0 || on == c.world.rank();
    if (c.world.is_root()) {
      c.ledger.phase(report::Phase::train, report::PhaseState::running);
      c.end_details["progress"] = true;
      std::printf("attempt %d steps %d\n", static_cast<int>(c.attempt), static_cast<int>(c.config.train.steps));
    }
    if (act == "throw" && me) throw base::DataError("sample 7 is bad\nvery", "mend it");
    if (act == "bug" && me) throw base::Bug("two is one");
    if (act == "agree")
      comm::agree_after(c.world, "open store", [&] {
        if (me) throw base::MissingInputError("part 3 is gone", "look for it");
      });
    if (act == "desert") {  // one throws while the others wait in a collective
      if (me) throw base::IoError("disk fell out", "put it back");
      c.world.barrier();
    }
    if (act == "stop") throw base::StopRequested("signal USR2");
    if (act == "code") return me ? 3 : 0;
    return 0;
  };
  return apps::run_mpi_program(argc, argv, spec);
}
