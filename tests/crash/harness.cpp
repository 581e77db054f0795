// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/verify.hpp>

namespace aerie::crash {
namespace {

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

/// `--write-mode mpio`, handed down by the environment. A process alone under no launcher starts MPI for itself.
io::WriteMode write_mode() {
  const char* mode = std::getenv("AERIE_CRASH_WRITE_MODE");
  if (!mode || std::string_view(mode) != "mpio") return io::WriteMode::posix;
  ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  int started = 0, level = 0;
  MPI_Initialized(&started);
  if (!started) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  return io::WriteMode::mpio;
}

io::CommitPolicy small_groups() {
  io::CommitPolicy policy;
  policy.commit_bytes = 2 << 20;
  policy.commit_samples = 3;
  policy.write_mode = write_mode();
  return policy;
}

/// Writes `todo`; samples that are durable are noted in `acks`, in the order of their commit.
void write_todo(io::StoreWriter& w, const io::Store& store, const std::vector<std::int64_t>& todo, const base::File& acks,
                bool drain_groups, bool records_first) {
  std::int64_t told = 0;
  const auto acknowledge = [&] {  // one writer commits in the order of put()
    for (const auto upto = w.committed_samples(); told < upto; ++told) {
      const auto line = std::to_string(todo[static_cast<std::size_t>(told)]) + "\n";
      base::write_full(acks, std::as_bytes(std::span(line.data(), line.size())));
    }
  };
  std::int64_t put = 0;
  for (const auto s : todo) {
    auto d = make(s, store.length(s));
    if (records_first) {
      write_record_too_early(store, s, d);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    w.put(s, std::move(d));
    if (drain_groups && ++put % small_groups().commit_samples == 0) w.drain();
    acknowledge();
  }
  w.drain();
  acknowledge();
  w.close();
}

/// Writes what is pending in `parts`.
void write_parts(io::Store& store, const std::vector<std::int64_t>& parts, const base::File& acks, bool drain_groups,
                 bool records_first) {
  std::vector<std::int64_t> todo;
  io::StoreWriter w(store, parts, small_groups());
  store.refresh();  // under the leases: what it says now stays so
  for (const auto p : parts) {
    const auto& part = store.parts().at(static_cast<std::size_t>(p));
    for (auto s = part.first; s < part.first + part.n; ++s)
      if (store.state(s).kind == io::StateKind::pending) todo.push_back(s);
  }
  write_todo(w, store, todo, acks, drain_groups, records_first);
}

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> out;
  std::istringstream list(text);
  for (std::string n; std::getline(list, n, ',');) out.push_back(std::stoll(n));
  return out;
}
std::string joined(const std::vector<std::int64_t>& list) {
  std::string out;
  for (const auto n : list) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

/// --write STORE LOG PARTS DRAIN_GROUPS RECORDS_FIRST
void write_samples(const std::vector<std::string>& words) {
  auto store = io::Store::open(words.at(1));
  const auto acks = base::open_file(words.at(2), O_WRONLY | O_CREAT | O_APPEND);
  write_parts(store, numbers(words.at(3)), acks, words.at(4) == "1", words.at(5) == "1");
}

/// --split STORE LOG MARK PARTS SHARED JOINED SAMPLES: one rank of several that write one part. MARK stands for the agreement of
/// the ranks: the owner makes it when the part is shared; a rank whose owner died before goes home.
void write_share(const std::vector<std::string>& words) {
  const auto store = io::Store::open(words.at(1));
  const auto acks = base::open_file(words.at(2), O_WRONLY | O_CREAT | O_APPEND);
  const fs::path mark = words.at(3);
  const io::Assignment mine{numbers(words.at(7)), numbers(words.at(4)), numbers(words.at(5)), numbers(words.at(6))};
  io::StoreWriter w(store, mine, small_groups());
  w.share();
  if (!mine.shared.empty()) base::open_file(mark, O_WRONLY | O_CREAT).close();
  if (!mine.joined.empty()) {
    for (int i = 0; i < 1500 && !fs::exists(mark); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!fs::exists(mark)) return;
    w.join();
  }
  auto todo = mine.samples;
  todo.insert(todo.end(), w.reopened().begin(), w.reopened().end());
  write_todo(w, store, todo, acks, false, false);
}

/// --job STORE LOG
void run_job(const std::vector<std::string>& words) {
  auto store = io::Store::open(words.at(1));
  const auto acks = base::open_file(words.at(2), O_WRONLY | O_CREAT | O_APPEND);
  while (store.counts().pending > 0) {
    const auto free = io::assign(store, 1, io::leased_parts(store)).at(0).parts;
    try {
      if (!free.empty()) write_parts(store, {free.front()}, acks, false, false);
    } catch (const base::RefusedError&) {  // another job was faster
    }
    if (free.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others are at the rest
    store.refresh();
  }
}

/// --push STORE
[[noreturn]] void push_states(const fs::path& dir) {
  struct Range {
    base::File file;
    std::int64_t offset, bytes;
  };
  std::vector<Range> ranges;
  for (const auto& e : fs::directory_iterator(dir / "parts")) {
    const auto state = io::ContiguousFile::open(e.path()).dataset("state");
    ranges.push_back({base::open_file(e.path(), O_RDWR), state.offset, state.bytes()});
  }
  for (;;)
    for (const auto& r : ranges) {
      constexpr unsigned wait_write_wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
      if (::sync_file_range(r.file.fd(), r.offset, r.bytes, wait_write_wait) != 0) ::_exit(0);  // the power is gone
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

pid_t start_self(const std::vector<std::string>& words, const std::string& fault, bool quiet = false) {
  std::vector<char*> argv{const_cast<char*>("/proc/self/exe")};
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const auto pid = ::fork();
  if (pid == 0) {
    if (quiet) ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    fault.empty() ? ::unsetenv("AERIE_FAULT") : ::setenv("AERIE_FAULT", fault.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return pid;
}

}  // namespace

io::StoreIdentity identity() {
  io::StoreIdentity d;
  d.hidden_size = hidden;
  d.vocab_size = 1000;
  d.target_num_layers = 8;
  d.aux_layer_ids = {2, 4, 5};
  return d;
}

std::vector<io::PlannedSample> plan() {
  std::vector<io::PlannedSample> p;
  for (std::int64_t i = 0; i < samples; ++i) p.push_back({16 + (i * 131) % 251, io::FailReason::none});
  p[rejected_sample] = {0, io::FailReason::too_long};
  return p;
}

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

void create(const fs::path& store, std::int64_t part_tokens, io::StateDtype dtype) {
  auto d = identity();
  d.dtype = dtype;
  io::Store::create(store, d, plan(), part_tokens * (8 * hidden + 5));
}

void serve(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return;
  const bool push = words[0] == "--push", write = words[0] == "--write", make_store = words[0] == "--create",
             job = words[0] == "--job", split = words[0] == "--split";
  if (!push && !write && !make_store && !job && !split) return;
  int code = 0;
  try {
    if (push) push_states(words.at(1));
    if (write) write_samples(words);
    if (make_store) create(words.at(1));
    if (job) run_job(words);
    if (split) write_share(words);
  } catch (const base::Error& e) {
    std::fprintf(stderr, "%s: %s\n", words[0].c_str() + 2, e.what());
    code = static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", words[0].c_str() + 2, e.what());
    code = static_cast<int>(base::ExitCode::bug);
  }
  ::_exit(code);
}

bool is_required(std::string_view what) {
  const char* text = std::getenv("AERIE_REQUIRE");
  return text && std::string_view(text).find(what) != std::string_view::npos;
}

Options::Options(int argc, char** argv, int default_trials)
    : trials(default_trials), seed(std::random_device{}()), words_(argv + 1, argv + argc) {
  serve(argc, argv);
  if (has("--trials")) trials = std::stoi(value("--trials"));
  if (has("--seed")) seed = static_cast<unsigned>(std::stoul(value("--seed")));
  python = value("--h5py");
  if (has("--write-mode")) ::setenv("AERIE_CRASH_WRITE_MODE", value("--write-mode").c_str(), 1);
  if (python.empty() && !has("--control") && is_required("h5py")) {
    std::printf("FAILED: AERIE_REQUIRE names h5py, but no python with it was found\n");
    std::exit(1);
  }
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
}
std::string Options::value(std::string_view name) const {
  const auto it = std::find(words_.begin(), words_.end(), name);
  return it == words_.end() || it + 1 == words_.end() ? std::string{} : *(it + 1);
}
bool Options::has(std::string_view name) const { return std::find(words_.begin(), words_.end(), name) != words_.end(); }

pid_t start_writer(const WriterSetup& setup, const std::vector<std::int64_t>& parts, const std::string& name) {
  return start_self(
      {"--write", setup.store, setup.logs / name, joined(parts), setup.drain_groups ? "1" : "0", setup.records_first ? "1" : "0"},
      setup.fault, setup.quiet);
}
std::vector<pid_t> start_writers(const WriterSetup& setup, int ranks, const std::string& name) {
  auto store = io::Store::open(setup.store);  // one view of the states for all, as ranks agree on one
  store.refresh();
  std::vector<pid_t> pids;
  if (setup.split) {
    const auto mark = setup.logs.parent_path() / ("shared." + name);
    for (const auto& a : io::assign(store, std::vector<int>(static_cast<std::size_t>(ranks), 0)))
      pids.push_back(start_self({"--split", setup.store, setup.logs / (name + "." + std::to_string(pids.size())), mark,
                                 joined(a.parts), joined(a.shared), joined(a.joined), joined(a.samples)},
                                setup.fault, setup.quiet));
    return pids;
  }
  for (const auto& share : io::assign(store, ranks))
    pids.push_back(start_writer(setup, share.parts, name + "." + std::to_string(pids.size())));
  return pids;
}
pid_t start_pusher(const fs::path& store) { return start_self({"--push", store}, "", true); }
pid_t start_creator(const fs::path& store, const std::string& fault) { return start_self({"--create", store}, fault, true); }
pid_t start_job(const WriterSetup& setup, const std::string& name) {
  return start_self({"--job", setup.store, setup.logs / name}, setup.fault, setup.quiet);
}

int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
void kill_and_reap(const std::vector<pid_t>& pids) {
  for (const auto p : pids) ::kill(p, SIGKILL);
  for (const auto p : pids) wait_for(p);
}
bool any_running(const std::vector<pid_t>& pids) {
  return std::any_of(pids.begin(), pids.end(), [](pid_t p) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(p), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  });
}
std::int64_t acknowledgements(const fs::path& logs) {
  std::int64_t lines = 0;
  for (const auto& e : fs::directory_iterator(logs)) {
    const auto text = base::read_text(e.path());
    lines += std::count(text.begin(), text.end(), '\n');
  }
  return lines;
}
bool wait_for_acknowledgements(const fs::path& logs, std::int64_t count, const std::vector<pid_t>& pids) {
  while (acknowledgements(logs) < count) {
    if (!any_running(pids)) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  return true;
}

Damage& Damage::operator+=(const Damage& o) {
  lost += o.lost, wrong += o.wrong, acknowledged += o.acknowledged, findings += o.findings;
  return *this;
}

bool holds_what_it_should(const io::Store& store, std::int64_t sample) {
  const auto expected = make(sample, store.length(sample));
  io::SampleData d;
  try {
    store.read(sample, d);
  } catch (const base::DataError&) {
    return false;
  }
  return d.aux == expected.aux && d.last == expected.last && d.input_ids == expected.input_ids &&
         d.loss_mask == expected.loss_mask;
}

Damage inspect(const fs::path& dir, const fs::path& logs) {
  Damage r;
  const auto store = io::Store::open(dir);
  for (std::int64_t s = 0; s < store.size(); ++s)
    r.wrong += store.state(s).kind == io::StateKind::done && !holds_what_it_should(store, s);
  std::set<std::int64_t> acknowledged;
  for (const auto& e : fs::directory_iterator(logs)) {
    std::ifstream in(e.path());
    for (std::string line; std::getline(in, line) && !in.eof();) acknowledged.insert(std::stoll(line));
  }
  r.acknowledged = static_cast<std::int64_t>(acknowledged.size());
  for (const auto s : acknowledged) r.lost += store.state(s).kind != io::StateKind::done;
  const auto report = io::verify_store(dir, {});  // neither a kill nor a power cut can leave a torn record
  for (const auto& f : report.findings) std::printf("verify: %s: %s\n", f.file.c_str(), f.text.c_str());
  r.findings = static_cast<std::int64_t>(report.findings.size());
  return r;
}

bool h5py_opens(const std::string& python, const fs::path& store) {
  const std::string code =
      "import glob,sys,h5py\n"
      "ps=sorted(glob.glob(sys.argv[1]+'/parts/*.h5'))\n"
      "assert ps\n"
      "for p in ps:\n"
      "  f=h5py.File(p,'r'); n=f['row_offset'][-1]; assert f['aux'].shape[0]==n; f['state'][:]; f['aux'][:1]\n";
  const auto pid = ::fork();
  if (pid == 0) {
    ::execlp(python.c_str(), python.c_str(), "-c", code.c_str(), store.c_str(), nullptr);
    ::_exit(127);
  }
  return wait_for(pid) == 0;
}

}  // namespace aerie::crash
