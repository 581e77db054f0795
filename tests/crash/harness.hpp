// SPDX-License-Identifier: Apache-2.0
// What the crash programs share: a store whose every byte can be made again from the sample's index, writer processes that note
// what was acknowledged as durable, and the inspection afterwards. Nothing here trusts the store's own checksums.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/io/store.hpp>
#include <aerie/io/store_writer.hpp>

namespace aerie::crash {

namespace fs = std::filesystem;
constexpr std::int64_t hidden = 256, samples = 96, rejected_sample = 13;
constexpr int skipped = 77;  // exit code that ctest takes as "skipped"

io::StoreIdentity identity();
std::vector<io::PlannedSample> plan();
/// Cheap, and a function of the sample alone.
io::SampleData make(std::int64_t sample, std::int64_t tokens);
/// A store of the plan, in parts of so many tokens.
void create(const fs::path& store, std::int64_t part_tokens = 5000, io::StateDtype dtype = io::StateDtype::bf16);

/// Does the work of a child process and does not return, when the command line asks for it: --write, --push, --create, --job,
/// --split. First thing in every main.
void serve(int argc, char** argv);
/// True when the environment's AERIE_REQUIRE names `what`: then its absence is a failure and no skip.
bool is_required(std::string_view what);

/// Command line of the trial programs: --trials N, --seed S, --h5py PYTHON, --write-mode posix|mpio, and words of their own that
/// are looked up by name.
class Options {
 public:
  /// Calls serve(). Prints the seed, so that a failure can be run again. Ends the program when h5py is required and not given.
  Options(int argc, char** argv, int trials);
  int trials;
  unsigned seed;
  std::string python;
  std::string value(std::string_view name) const;  // empty: not given
  bool has(std::string_view name) const;

 private:
  std::vector<std::string> words_;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

 private:
  std::mt19937 engine_;
};

/// How a writer process works. It is this program started anew with --write, so that AERIE_FAULT is read afresh.
struct WriterSetup {
  fs::path store, logs;
  std::string fault = {};      // AERIE_FAULT of the process
  bool drain_groups = false;   // drain() after every group in place of the pipelined form
  bool records_first = false;  // a control: each record goes out before its data
  bool quiet = false;          // its errors are expected: nothing on stderr
  bool split = false;          // the ranks are of one host and split parts
};
/// One process for the samples of `parts` that are not settled; its acknowledgements go to logs/NAME.
pid_t start_writer(const WriterSetup& setup, const std::vector<std::int64_t>& parts, const std::string& name);
/// Parts dealt out to `ranks` by io::assign, a process for each rank.
std::vector<pid_t> start_writers(const WriterSetup& setup, int ranks, const std::string& name);
/// A process that forces the pages of the state records to disk as soon as it can, until it is killed.
pid_t start_pusher(const fs::path& store);

/// Makes the store in a process of its own.
pid_t start_creator(const fs::path& store, const std::string& fault);
/// A job that knows nothing of others: while there are pending samples it takes one part that nobody leases, and writes it.
pid_t start_job(const WriterSetup& setup, const std::string& name);

/// Exit code, or 128 + signal.
int wait_for(pid_t pid);
void kill_and_reap(const std::vector<pid_t>& pids);
bool any_running(const std::vector<pid_t>& pids);  // reaps nothing
/// Waits until `count` acknowledgements are there or no process runs any more; false in the latter case.
bool wait_for_acknowledgements(const fs::path& logs, std::int64_t count, const std::vector<pid_t>& pids);
std::int64_t acknowledgements(const fs::path& logs);

struct Damage {
  std::int64_t lost = 0;          // acknowledged, but not done
  std::int64_t wrong = 0;         // done over wrong bytes
  std::int64_t acknowledged = 0;  // distinct samples
  std::int64_t findings = 0;      // of verify: metadata, structure, torn records
  bool any() const { return lost + wrong + findings > 0; }
  Damage& operator+=(const Damage& o);
};
/// Every done sample is compared byte by byte with what it should be.
Damage inspect(const fs::path& store, const fs::path& logs);
/// Byte by byte; sample s of the plan.
bool holds_what_it_should(const io::Store& store, std::int64_t sample);
/// True when h5py opens every part and reads its state and first rows.
bool h5py_opens(const std::string& python, const fs::path& store);

}  // namespace aerie::crash
