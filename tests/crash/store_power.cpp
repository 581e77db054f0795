// SPDX-License-Identifier: Apache-2.0
// The writer under power cuts. Each trial writes into a file system in an image and cuts its power at a random moment: what the
// kernel had not written is gone. After the journal was replayed every sample that was acknowledged before the cut must be done,
// and every done sample must hold the right bytes; then other writers finish the store. The acknowledgement logs lie outside.
// In most trials a process forces the pages of the state records out early, to provoke what the protocol must withstand.
//   test_crash_store_power [--fs ext4,xfs] [--trials N] [--seed S] [--h5py PYTHON] [--control no-sync|one-sync]
// The controls leave out every fdatasync (bad in at least 90 % of the trials), or the one between data and records (ends at the
// first trial that is bad; there must be one). Trials are spread over the file systems.
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <thread>

#include "harness.hpp"
#include "loop_image.hpp"
#include "temp_dir.hpp"

using namespace aerie::crash;

namespace {

struct Totals {
  int trials = 0, cut_trials = 0, cuts = 0, bad = 0, opened = 0, failures = 0;
  std::int64_t acknowledged_at_cuts = 0;
  Damage damage;
};

/// Only what had been acknowledged before the cut counts: the logs are cut back to their length of then.
std::map<fs::path, std::uintmax_t> log_lengths(const fs::path& logs) {
  std::map<fs::path, std::uintmax_t> lengths;
  for (const auto& e : fs::directory_iterator(logs)) lengths[e.path()] = fs::file_size(e.path());
  return lengths;
}
void cut_logs_back(const fs::path& logs, const std::map<fs::path, std::uintmax_t>& lengths) {
  for (const auto& e : fs::directory_iterator(logs)) {
    const auto it = lengths.find(e.path());
    fs::resize_file(e.path(), it == lengths.end() ? 0 : it->second);
  }
}

void run_trial(const std::string& type, Random& random, const Options& options, const std::string& control, Totals& t) {
  const aerie::test::TempDir dir;
  WriterSetup setup{dir / "mount" / "store", dir / "logs", "", false, false, true};
  LoopImage image(type, dir.path(), 400);
  fs::create_directory(setup.logs);
  create(setup.store);
  if (control == "no-sync") setup.fault = "file.fdatasync:*:1+:skip";
  if (control == "one-sync") setup.fault = "store.data_sync:*:1+:skip", setup.drain_groups = true;
  bool cut = false, bad = false;
  const int cuts = control.empty() ? random.pick(1, 3) : 1;
  for (int attempt = 0; attempt < cuts && !bad; ++attempt) {
    const auto pids = start_writers(setup, random.chance(50) ? 2 : 4, std::to_string(attempt));
    std::vector<pid_t> all = pids;
    if (!control.empty() || random.chance(70)) all.push_back(start_pusher(setup.store));
    const auto before = acknowledgements(setup.logs);
    wait_for_acknowledgements(setup.logs, before + random.pick(control == "no-sync" ? 4 : 1, 40 / cuts), pids);
    // Without any fdatasync it is the newest samples that are lost, before the kernel has written them of its own accord.
    if (control != "no-sync") std::this_thread::sleep_for(std::chrono::microseconds(random.pick(0, 30000)));
    const bool running = any_running(pids);
    const auto lengths = log_lengths(setup.logs);
    image.cut_power();
    kill_and_reap(all);
    cut_logs_back(setup.logs, lengths);
    image.remount();
    cut |= running, t.cuts += running;
    const auto d = inspect(setup.store, setup.logs);
    t.acknowledged_at_cuts += d.acknowledged;
    bad = d.any();
    t.damage.lost += d.lost, t.damage.wrong += d.wrong, t.damage.findings += d.findings;
    if (bad && control.empty())
      std::printf("%s, trial %d, cut %d: lost %lld, wrong %lld\n", type.c_str(), t.trials, attempt,
                  static_cast<long long>(d.lost), static_cast<long long>(d.wrong));
    if (!options.python.empty() && attempt == 0) h5py_opens(options.python, setup.store) ? ++t.opened : ++t.failures;
  }
  ++t.trials, t.cut_trials += cut, t.bad += bad;
  if (!control.empty()) return;
  setup.quiet = false;
  for (const auto p : start_writers(setup, random.pick(1, 3), "last"))
    if (wait_for(p) != 0) ++t.failures;
  const auto d = inspect(setup.store, setup.logs);
  t.damage += d;
  if (aerie::io::Store::open(setup.store).counts().done != samples - 1) ++t.failures;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv, 6);
  const auto control = options.value("--control");
  std::vector<std::string> types;
  std::istringstream list(options.has("--fs") ? options.value("--fs") : "ext4,xfs");
  for (std::string type; std::getline(list, type, ',');) types.push_back(type);
  for (const auto& type : types)
    if (const auto why = loop_images_unavailable(type)) return skip_or_fail(type + ": " + *why);
  Random random(options.seed);
  Totals all;
  for (std::size_t f = 0; f < types.size(); ++f) {
    Totals t;
    const int count = (options.trials + static_cast<int>(types.size() - 1 - f)) / static_cast<int>(types.size());
    for (int i = 0; i < count && !(control == "one-sync" && all.bad + t.bad > 0); ++i)
      run_trial(types[f], random, options, control, t);
    std::printf(
        "%s: %d trials, %d with a cut while writing, %d such cuts, %lld acknowledged at cuts, %d bad; lost %lld, done over wrong "
        "bytes %lld, "
        "findings of verify %lld, other failures %d; h5py opened the parts after %d cuts\n",
        types[f].c_str(), t.trials, t.cut_trials, t.cuts, static_cast<long long>(t.acknowledged_at_cuts), t.bad,
        static_cast<long long>(t.damage.lost), static_cast<long long>(t.damage.wrong), static_cast<long long>(t.damage.findings),
        t.failures, t.opened);
    std::fflush(stdout);
    all.trials += t.trials, all.cut_trials += t.cut_trials, all.bad += t.bad, all.failures += t.failures;
    all.damage += t.damage;
  }
  if (control == "no-sync")
    return std::printf("control no-sync: bad in %d of %d trials\n", all.bad, all.trials), 10 * all.bad >= 9 * all.trials ? 0 : 1;
  if (control == "one-sync")
    return std::printf("control one-sync: bad after %d trials: %d\n", all.trials, all.bad), all.bad > 0 ? 0 : 1;
  if (3 * all.cut_trials < all.trials) return std::printf("void: fewer than a third of the cuts came while writing\n"), 1;
  return all.damage.any() || all.failures > 0 ? 1 : 0;
}
