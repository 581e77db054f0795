// SPDX-License-Identifier: Apache-2.0
// The writer under SIGKILL. Each trial starts 1 to 3 writer processes on one store, kills one or all of them at a random moment,
// and starts again with another number of writers until every sample is done. Writers note what was acknowledged as durable in
// logs of their own; afterwards every acknowledged sample must be done, and every done sample must hold the right bytes.
//   test_crash_store_kill [--trials N] [--seed S] [--h5py PYTHON] [--break-protocol]
// --break-protocol is the control: records are written before any data, and the check must then find damage.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/store.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/io/verify.hpp>

#include "temp_dir.hpp"

namespace {

namespace fs = std::filesystem;
namespace io = aerie::io;
namespace base = aerie::base;
constexpr std::int64_t hidden = 256, samples = 96;

std::vector<io::PlannedSample> plan() {
  std::vector<io::PlannedSample> p;
  for (std::int64_t i = 0; i < samples; ++i) p.push_back({16 + (i * 131) % 251, io::FailReason::none});
  p[13] = {0, io::FailReason::too_long};
  return p;
}

/// Cheap and a function of the sample alone.
io::SampleData make(std::int64_t sample, std::int64_t tokens) {
  io::SampleData d;
  auto x = static_cast<std::uint32_t>(sample * 2654435761LL + 12345);
  const auto next = [&x] { return x = x * 1664525U + 1013904223U; };
  d.aux.resize(static_cast<std::size_t>(tokens * 3 * hidden));
  d.last.resize(static_cast<std::size_t>(tokens * hidden));
  for (auto& v : d.aux) v = static_cast<std::uint16_t>((next() >> 16) & 0xbfffU);
  for (auto& v : d.last) v = static_cast<std::uint16_t>((next() >> 16) & 0xbfffU);
  for (std::int64_t i = 0; i < tokens; ++i) d.input_ids.push_back(static_cast<std::int32_t>((next() >> 8) % 1000U));
  for (std::int64_t i = 0; i < tokens; ++i) d.loss_mask.push_back(static_cast<std::uint8_t>((next() >> 31) & 1U));
  return d;
}

/// A record without data under it: what the protocol must never leave behind. Written by hand, as the format says.
void write_record_too_early(const io::Store& store, std::int64_t sample, const io::SampleData& d) {
  const auto& part = store.parts()[static_cast<std::size_t>(store.part_of(sample))];
  const auto state = io::ContiguousFile::open(store.path() / part.file).dataset("state").offset;
  base::Xxh3 h;
  h.update(std::as_bytes(std::span(d.aux)));
  h.update(std::as_bytes(std::span(d.last)));
  h.update(std::as_bytes(std::span(d.input_ids)));
  h.update(std::as_bytes(std::span(d.loss_mask)));
  const std::uint64_t words[3] = {static_cast<std::uint64_t>(sample), h.digest64(), 1};
  struct {
    std::uint64_t xxh3;
    std::uint32_t status, self;
  } record{words[1], 1, static_cast<std::uint32_t>(base::xxh3_64(std::as_bytes(std::span(words)))) | 1U};
  const auto f = base::open_file(store.path() / part.file, O_RDWR);
  base::pwrite_full(f, std::as_bytes(std::span(&record, 1)), state + 16 * (sample - part.first));
}

/// One writer process: its share of the work, acknowledging what drain() promised.
int writer(const io::Store& store, const io::Assignment& mine, const fs::path& log, bool broken) {
  const auto acks = base::open_file(log, O_WRONLY | O_CREAT | O_APPEND);
  io::CommitPolicy policy;
  policy.commit_bytes = 2 << 20;
  policy.commit_samples = 3;
  io::StoreWriter w(store, mine.parts, policy);
  auto todo = mine.samples;
  todo.insert(todo.end(), w.reopened().begin(), w.reopened().end());
  std::sort(todo.begin(), todo.end());
  todo.erase(std::unique(todo.begin(), todo.end()), todo.end());
  std::int64_t told = 0;
  const auto acknowledge = [&](std::int64_t upto) {  // one writer commits in the order of put()
    for (; told < upto; ++told) {
      const auto line = std::to_string(todo[static_cast<std::size_t>(told)]) + "\n";
      base::write_full(acks, std::as_bytes(std::span(line.data(), line.size())));
    }
  };
  for (const auto s : todo) {
    auto d = make(s, store.length(s));
    if (broken) {
      write_record_too_early(store, s, d);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    w.put(s, std::move(d));
    acknowledge(w.committed_samples());
  }
  w.drain();
  acknowledge(w.committed_samples());
  w.close();
  return 0;
}

struct Damage {
  std::int64_t lost = 0, wrong = 0, acknowledged = 0, findings = 0;
};
/// The done ones are compared byte by byte with what they should be, not with their own checksum.
Damage inspect(const fs::path& dir, const fs::path& logs) {
  Damage r;
  auto store = io::Store::open(dir);
  io::SampleData d;
  for (std::int64_t s = 0; s < store.size(); ++s) {
    if (store.state(s).kind != io::StateKind::done) continue;
    const auto expected = make(s, store.length(s));
    try {
      store.read(s, d);
      if (d.aux != expected.aux || d.last != expected.last || d.input_ids != expected.input_ids ||
          d.loss_mask != expected.loss_mask)
        ++r.wrong;
    } catch (const base::DataError&) {
      ++r.wrong;
    }
  }
  std::set<std::int64_t> acknowledged;
  for (const auto& e : fs::directory_iterator(logs)) {
    std::ifstream in(e.path());
    for (std::string line; std::getline(in, line) && !in.eof();) acknowledged.insert(std::stoll(line));
  }
  r.acknowledged = static_cast<std::int64_t>(acknowledged.size());
  for (const auto s : acknowledged) r.lost += store.state(s).kind != io::StateKind::done;
  io::VerifyOptions o;  // metadata and structure; a torn record cannot come from a kill either
  r.findings = static_cast<std::int64_t>(io::verify_store(dir, o).findings.size());
  return r;
}

bool h5py_opens(const std::string& python, const fs::path& dir) {
  const std::string code =
      "import glob,sys,h5py\n"
      "ps=sorted(glob.glob(sys.argv[1]+'/parts/*.h5'))\n"
      "assert ps\n"
      "for p in ps:\n"
      "  f=h5py.File(p,'r'); n=f['row_offset'][-1]; assert f['aux'].shape[0]==n; f['state'][:]; f['aux'][:1]\n";
  const auto pid = ::fork();
  if (pid == 0) {
    ::execlp(python.c_str(), python.c_str(), "-c", code.c_str(), dir.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  int trials = 15;
  bool broken = false;
  std::string python;
  auto seed = std::random_device{}();
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--break-protocol")
      broken = true;
    else if (i + 1 >= argc)
      return std::fprintf(stderr, "%s needs a value\n", argv[i]), 2;
    else if (a == "--trials")
      trials = std::atoi(argv[++i]);
    else if (a == "--seed")
      seed = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    else if (a == "--h5py")
      python = argv[++i];
    else
      return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };

  io::StoreIdentity identity;
  identity.hidden_size = hidden;
  identity.vocab_size = 1000;
  identity.target_num_layers = 8;
  identity.aux_layer_ids = {2, 4, 5};
  int kills = 0, killed_trials = 0, opened = 0, failures = 0;
  Damage sum;
  const auto start = std::chrono::steady_clock::now();
  for (int trial = 0; trial < trials; ++trial) {
    if (trial >= 5 && std::chrono::steady_clock::now() - start > std::chrono::seconds(45)) {
      std::printf("slow machine: %d of %d trials in the time\n", trial, trials);
      trials = trial;
      break;
    }
    const aerie::test::TempDir dir;
    const auto store = dir / "store", logs = dir / "logs";
    fs::create_directory(logs);
    io::Store::create(store, identity, plan(), 5000 * (8 * hidden + 5));
    bool killed = false, complete = false;
    for (int attempt = 0; attempt < 12 && !complete; ++attempt) {
      const int ranks = pick(1, 3);
      const bool to_the_end = attempt >= pick(1, 4);
      auto before = io::Store::open(store);  // the writers agree on one view of the states, as ranks do
      before.refresh();
      const auto shares = io::assign(before, ranks);
      std::vector<pid_t> pids;
      for (int r = 0; r < ranks; ++r) {
        const auto pid = ::fork();
        if (pid == 0) {
          int code = 1;
          try {
            code = writer(before, shares[static_cast<std::size_t>(r)], logs / (std::to_string(attempt) + "." + std::to_string(r)),
                          broken);
          } catch (const std::exception& e) {
            std::fprintf(stderr, "writer: %s\n", e.what());
          }
          ::_exit(code);
        }
        pids.push_back(pid);
      }
      if (!to_the_end) {
        std::this_thread::sleep_for(std::chrono::microseconds(pick(1000, 120000)));
        if (pick(0, 1))
          for (const auto p : pids) ::kill(p, SIGKILL);
        else
          ::kill(pids[static_cast<std::size_t>(pick(0, ranks - 1))], SIGKILL);
      }
      bool this_killed = false;
      for (const auto p : pids) {
        int status = 0;
        ::waitpid(p, &status, 0);
        if (WIFSIGNALED(status))
          this_killed = true, ++kills;  // one that had ended already is no kill
        else if (WEXITSTATUS(status) != 0)
          ++failures;
      }
      if (!python.empty() && this_killed && !killed)
        h5py_opens(python, store) ? ++opened : ++failures;  // once a trial: it starts slowly
      killed |= this_killed;
      const auto d = inspect(store, logs);
      sum.lost += d.lost, sum.wrong += d.wrong, sum.findings += d.findings;
      const auto c = io::Store::open(store).counts();
      complete = c.pending == 0;
      if (complete) {
        sum.acknowledged += d.acknowledged;
        if (c.done != samples - 1 || (!broken && d.acknowledged > samples - 1)) ++failures;
      }
      if (broken && d.wrong + d.lost > 0) break;  // found; going on would trip over it
    }
    if (!complete && !broken) ++failures;
    killed_trials += killed;
  }
  std::printf(
      "%d trials, %d with a real kill, %d processes killed, %lld samples acknowledged; lost %lld, done over wrong bytes %lld, "
      "findings of verify %lld, other failures %d; %s\n",
      trials, killed_trials, kills, static_cast<long long>(sum.acknowledged), static_cast<long long>(sum.lost),
      static_cast<long long>(sum.wrong), static_cast<long long>(sum.findings), failures,
      python.empty() ? "h5py is not there: that part was SKIPPED"
                     : ("h5py opened the parts after " + std::to_string(opened) + " kills").c_str());
  if (3 * killed_trials < trials) return std::printf("void: fewer than a third of the trials were real kills\n"), 1;
  const bool clean = sum.lost == 0 && sum.wrong == 0 && sum.findings == 0 && failures == 0;
  if (broken) {
    std::printf(sum.wrong > 0 ? "the control was found out, as it must be\n" : "the control was NOT found out\n");
    return sum.wrong > 0 ? 0 : 1;
  }
  return clean ? 0 : 1;
}
