// SPDX-License-Identifier: Apache-2.0
// The writer under SIGKILL. Each trial starts 1 to 4 writer processes on one store, kills one or all of them at a random moment,
// and starts again with another number of writers until every sample is done. Writers note what was acknowledged as durable in
// logs of their own; afterwards every acknowledged sample must be done, and every done sample must hold the right bytes.
//   test_crash_store_kill [--trials N] [--seed S] [--h5py PYTHON] [--write-mode mpio] [--split] [--control
//   records-first|lost-write]
// With --split the store is one part, which all writers share.
// The controls break the protocol and must be found out: records go out before any data, or a write of data is left out.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "harness.hpp"
#include "temp_dir.hpp"

using namespace aerie::crash;

namespace {

struct Totals {
  int killed_trials = 0, kills = 0, opened = 0, failures = 0, found_out = 0;
  Damage damage;
};

void wait_for_the_moment(Random& random, const fs::path& logs, const std::vector<pid_t>& pids) {
  if (random.chance(60)) wait_for_acknowledgements(logs, acknowledgements(logs) + random.pick(1, 30), pids);
  std::this_thread::sleep_for(std::chrono::microseconds(random.pick(0, 60000)));
}

void run_trial(Random& random, const Options& options, const std::string& control, Totals& totals) {
  const aerie::test::TempDir dir;
  WriterSetup setup{dir / "store", dir / "logs", "", false, control == "records-first"};
  setup.split = options.has("--split");
  if (control == "lost-write") setup.fault = "file.pwrite:*:random-30-" + std::to_string(random.pick(1, 1 << 30)) + ":skip";
  fs::create_directory(setup.logs);
  create(setup.store, setup.split ? 1 << 20 : 5000);
  bool killed = false, complete = false;
  const int attempts_with_kills = random.pick(1, 4);
  for (int attempt = 0; attempt < 12 && !complete; ++attempt) {
    const int ranks = random.pick(1, 4);
    const auto pids = start_writers(setup, ranks, std::to_string(attempt));
    if (attempt < attempts_with_kills) {
      wait_for_the_moment(random, setup.logs, pids);
      if (random.chance(50))
        for (const auto p : pids) ::kill(p, SIGKILL);
      else
        ::kill(pids[static_cast<std::size_t>(random.pick(0, ranks - 1))], SIGKILL);
    }
    bool this_killed = false;
    for (const auto p : pids) {
      const int code = wait_for(p);
      if (code == 128 + SIGKILL)
        this_killed = true, ++totals.kills;  // one that had ended already is no kill
      else if (code != 0)
        ++totals.failures;
    }
    if (!options.python.empty() && this_killed && !killed)
      h5py_opens(options.python, setup.store) ? ++totals.opened : ++totals.failures;  // once a trial: it starts slowly
    killed |= this_killed;
    auto d = inspect(setup.store, setup.logs);
    const auto c = aerie::io::Store::open(setup.store).counts();
    complete = c.pending == 0;
    if (complete && control.empty() && (c.done != samples - 1 || d.acknowledged > samples - 1)) ++totals.failures;
    if (!control.empty() && d.wrong > 0) {  // going on would trip over it
      ++totals.found_out;
      break;
    }
    if (!complete) d.acknowledged = 0;  // counted once, at the end
    totals.damage += d;
  }
  if (!complete && control.empty()) ++totals.failures;
  totals.killed_trials += killed;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv, 20);
  const auto control = options.value("--control");
  Random random(options.seed);
  Totals t;
  for (int trial = 0; trial < options.trials; ++trial) run_trial(random, options, control, t);
  std::printf(
      "%d trials, %d with a real kill, %d processes killed, %lld samples acknowledged; lost %lld, done over wrong bytes %lld, "
      "findings of verify %lld, other failures %d; %s\n",
      options.trials, t.killed_trials, t.kills, static_cast<long long>(t.damage.acknowledged),
      static_cast<long long>(t.damage.lost), static_cast<long long>(t.damage.wrong), static_cast<long long>(t.damage.findings),
      t.failures,
      options.python.empty() ? "h5py was not asked"
                             : ("h5py opened the parts after " + std::to_string(t.opened) + " kills").c_str());
  if (!control.empty()) {
    std::printf("control %s: found out in %d of %d trials\n", control.c_str(), t.found_out, options.trials);
    return t.found_out > 0 ? 0 : 1;
  }
  if (3 * t.killed_trials < options.trials) return std::printf("void: fewer than a third of the trials were real kills\n"), 1;
  return t.damage.any() || t.failures > 0 ? 1 : 0;
}
