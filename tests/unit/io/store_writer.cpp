// SPDX-License-Identifier: Apache-2.0
// The writer: same bytes whatever the number of writers, resume, leases, the check at the end of the last commit, failures.
#include <aerie/io/store_writer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/file.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/verify.hpp>

#include "store_fixture.hpp"

namespace aerie::test {
namespace {

using io::StateKind;
using io::Store;
using io::StoreWriter;

bool verifies(const std::filesystem::path& dir) {
  io::VerifyOptions o;
  o.full = true;
  const auto report = io::verify_store(dir, o);
  for (const auto& f : report.findings) ADD_FAILURE() << f.file << " sample " << f.sample << ": " << f.text;
  return report.findings.empty();
}

TEST(StoreWriter, BytesDoNotDependOnTheNumberOfWriters) {
  const TempDir dir;
  create_small(dir / "1");  // copies share their uuids, so that whole files can be compared
  for (const char* n : {"2", "3"}) std::filesystem::copy(dir / "1", dir / n, std::filesystem::copy_options::recursive);
  for (int writers = 1; writers <= 3; ++writers) {
    auto store = Store::open(dir / std::to_string(writers));
    const auto shares = io::assign(store, writers);
    std::vector<std::thread> threads;
    for (const auto& a : shares)
      threads.emplace_back([&store, &a, writers] {
        auto policy = small_policy();
        policy.commit_samples = writers;  // other groups too
        StoreWriter w(store, a.parts, policy);
        for (const auto s : a.samples) w.put(s, make_sample(s, store.length(s)));
        w.close();
      });
    for (auto& t : threads) t.join();
    EXPECT_TRUE(verifies(dir / std::to_string(writers)));
  }
  const auto store = Store::open(dir / "1");
  for (const auto& p : store.parts()) {
    const auto bytes = slurp(dir / "1" / p.file);
    EXPECT_TRUE(slurp(dir / "2" / p.file) == bytes) << p.file;
    EXPECT_TRUE(slurp(dir / "3" / p.file) == bytes) << p.file;
  }
}

TEST(StoreWriter, AssignmentIsCompleteAndBalanced) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, {1}, small_policy());
  store.refresh();
  for (const int ranks : {1, 2, 3, 40}) {
    const auto shares = io::assign(store, ranks, std::vector<std::int64_t>{0});
    ASSERT_EQ(shares.size(), static_cast<std::size_t>(ranks));
    std::vector<std::int64_t> seen, load;
    for (const auto& a : shares) {
      EXPECT_TRUE(std::is_sorted(a.samples.begin(), a.samples.end()));
      load.push_back(0);
      for (const auto s : a.samples) {
        EXPECT_NE(std::find(a.parts.begin(), a.parts.end(), store.part_of(s)), a.parts.end());
        seen.push_back(s);
        load.back() += store.length(s);
      }
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::int64_t> expected;
    for (std::int64_t s = 0; s < store.size(); ++s)
      if (store.part_of(s) > 1 && store.length(s) > 0) expected.push_back(s);
    EXPECT_EQ(seen, expected);
    if (ranks <= 3) {
      EXPECT_LE(*std::max_element(load.begin(), load.end()) - *std::min_element(load.begin(), load.end()), 100);
    }
  }
}

TEST(StoreWriter, ResumesAfterADrainedWriter) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  {
    StoreWriter w(store, all_parts(store), small_policy());
    for (const std::int64_t s : {0, 1, 2, 3, 4}) w.put(s, make_sample(s, store.length(s)));
    w.drain();
    EXPECT_EQ(w.committed_samples(), 5);
    EXPECT_EQ(w.committed_tokens(), store.length(0) + store.length(1) + store.length(2) + store.length(3) + store.length(4));
    w.put(6, make_sample(6, store.length(6)));  // never committed
  }
  store.refresh();
  for (std::int64_t s = 0; s < 5; ++s) EXPECT_EQ(store.state(s).kind, StateKind::done);
  EXPECT_EQ(store.state(6).kind, StateKind::pending);
  write_parts(store, all_parts(store), small_policy());
  EXPECT_TRUE(verifies(dir / "s"));
  store.refresh();
  EXPECT_EQ(store.counts().done, 20);
}

TEST(StoreWriter, AnUndrainedWriterLeavesOnlyWholeSamples) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  std::int64_t committed = 0;
  {
    StoreWriter w(store, all_parts(store), small_policy());
    for (std::int64_t s = 0; s < 20; ++s)
      if (store.length(s) > 0) w.put(s, make_sample(s, store.length(s)));
    committed = w.committed_samples();
  }
  store.refresh();
  EXPECT_GE(store.counts().done, committed);
  EXPECT_TRUE(verifies(dir / "s"));
  write_parts(store, all_parts(store), small_policy());
  EXPECT_TRUE(verifies(dir / "s"));
  store.refresh();
  EXPECT_EQ(store.counts().pending, 0);
}

TEST(StoreWriter, CommitsByAgeWithoutBeingAsked) {
  const TempDir dir;
  const auto store = create_small(dir / "s");
  auto policy = small_policy();
  policy.commit_seconds = 0.02;
  StoreWriter w(store, all_parts(store), policy);
  w.put(0, make_sample(0, store.length(0)));
  for (int i = 0; i < 500 && w.committed_samples() < 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(w.committed_samples(), 1);
  w.close();
}

TEST(StoreWriter, ChecksTheEndOfTheLastCommit) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, all_parts(store), small_policy());
  const auto& part = store.parts()[0];
  const auto last = part.first + part.n - 1;
  ASSERT_GT(store.length(last), 0);
  const auto f = io::ContiguousFile::open(dir / "s" / part.file);
  flip_bit(f.file().path(), f.dataset("aux").offset + f.dataset("aux").bytes() - 1, 2);
  std::vector<std::string> log;
  StoreWriter w(store, std::vector<std::int64_t>{0}, small_policy(), [&](const std::string& line) { log.push_back(line); });
  EXPECT_EQ(w.reopened(), std::vector<std::int64_t>{last});
  ASSERT_EQ(log.size(), 1U);
  EXPECT_TRUE(contains(log[0], "sample " + std::to_string(last))) << log[0];
  store.refresh();
  EXPECT_EQ(store.state(last).kind, StateKind::pending);
  w.put(last, make_sample(last, store.length(last)));
  w.close();
  EXPECT_TRUE(verifies(dir / "s"));
}

TEST(StoreWriter, TheCheckIsBoundedByOneGroup) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, {0}, small_policy());
  const auto f = io::ContiguousFile::open(dir / "s" / store.parts()[0].file);
  flip_bit(f.file().path(), f.dataset("aux").offset, 2);  // first sample, far from the end of its run
  auto policy = small_policy();
  policy.commit_samples = 1;
  StoreWriter w(store, std::vector<std::int64_t>{0}, policy);
  EXPECT_TRUE(w.reopened().empty());
}

TEST(StoreWriter, NonFiniteStatesFailTheSample) {
  for (const std::uint16_t bad : {std::uint16_t{0x7f80}, std::uint16_t{0xff80}, std::uint16_t{0x7fc1}}) {  // inf, -inf, NaN
    const TempDir dir;
    auto store = create_small(dir / "s");
    StoreWriter w(store, all_parts(store), small_policy());
    auto in_aux = make_sample(0, store.length(0)), in_last = make_sample(1, store.length(1));
    in_aux.aux.back() = bad;
    in_last.last.front() = bad;
    EXPECT_FALSE(w.put(0, std::move(in_aux)));
    EXPECT_FALSE(w.put(1, std::move(in_last)));
    auto largest = make_sample(2, store.length(2));
    largest.aux[0] = 0x7f7f;
    EXPECT_TRUE(w.put(2, std::move(largest)));
    w.close();
    store.refresh();
    EXPECT_EQ(store.state(0).reason, io::FailReason::nonfinite);
    EXPECT_EQ(store.state(1).reason, io::FailReason::nonfinite);
    EXPECT_EQ(store.state(2).kind, StateKind::done);
    EXPECT_TRUE(verifies(dir / "s"));
  }
}

TEST(StoreWriter, ASecondWriterIsRefusedAndToldByWhom) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  auto first = std::make_unique<StoreWriter>(store, std::vector<std::int64_t>{1}, small_policy("job 41 host n7 pid 9"));
  EXPECT_EQ(io::leased_parts(store), std::vector<std::int64_t>{1});
  const auto text = error_of<base::RefusedError>([&] { StoreWriter(store, all_parts(store), small_policy("job 42")); });
  EXPECT_TRUE(contains(text, "part-00001.h5") && contains(text, "job 41 host n7 pid 9")) << text;
  EXPECT_EQ(io::leased_parts(store), std::vector<std::int64_t>{1}) << "the refused writer kept leases";
  EXPECT_THROW(io::set_pending(store, std::vector<std::int64_t>{store.parts()[1].first}, "job 42"), base::RefusedError);
  first.reset();
  EXPECT_TRUE(io::leased_parts(store).empty());
  write_parts(store, {1}, small_policy());
}

TEST(StoreWriter, LeavesAloneWhatAnotherJobFinished) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, {0}, small_policy());  // `store` does not know yet
  const auto before = slurp(dir / "s" / store.parts()[0].file);
  std::vector<std::string> log;
  StoreWriter w(store, std::vector<std::int64_t>{0}, small_policy(), [&](const std::string& line) { log.push_back(line); });
  EXPECT_TRUE(w.put(0, make_sample(99, store.length(0))));
  EXPECT_TRUE(w.put(1, make_sample(98, store.length(1))));
  w.close();
  EXPECT_EQ(w.committed_samples(), 0);
  EXPECT_EQ(log.size(), 1U);
  EXPECT_TRUE(slurp(dir / "s" / store.parts()[0].file) == before);
}

TEST(StoreWriter, MisuseIsABug) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  StoreWriter w(store, std::vector<std::int64_t>{0}, small_policy());
  EXPECT_THROW(w.put(22, make_sample(22, store.length(22))), base::Bug) << "a part without lease";
  EXPECT_THROW(w.put(0, make_sample(0, store.length(0) + 1)), base::Bug) << "wrong rows";
  w.put(0, make_sample(0, store.length(0)));
  EXPECT_THROW(w.put(0, make_sample(0, store.length(0))), base::Bug) << "given twice";
  auto mask = make_sample(1, store.length(1));
  mask.loss_mask[0] = 2;
  EXPECT_THROW(w.put(1, std::move(mask)), base::DataError);
  EXPECT_THROW(w.fail(1, io::FailReason::empty), base::Bug) << "a reason of planning";
  w.close();
  EXPECT_THROW(w.put(2, make_sample(2, store.length(2))), base::Bug) << "closed";
}

TEST(StoreWriter, SetPendingIsDurableAndRefusesRejectedSamples) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, all_parts(store), small_policy());
  EXPECT_TRUE(io::set_pending(store, std::vector<std::int64_t>{2, 20}, "job 5").empty()) << "not as this view shows them";
  store.refresh();
  EXPECT_EQ(io::set_pending(store, std::vector<std::int64_t>{2, 20}, "job 5"), (std::vector<std::int64_t>{2, 20}));
  store.refresh();
  EXPECT_EQ(store.state(2).kind, StateKind::pending);
  EXPECT_EQ(store.state(20).kind, StateKind::pending);
  EXPECT_EQ(store.counts().done, 18);
  EXPECT_TRUE(contains(error_of<base::DataError>([&] {
                         io::set_pending(store, std::vector<std::int64_t>{3, 11}, "job 5");
                       }),
                       "sample 11"));
  store.refresh();
  EXPECT_EQ(store.counts().done, 18) << "nothing is changed when one is refused";
  EXPECT_TRUE(verifies(dir / "s"));
}

/// Not a test: a writer whose environment chose a fault.
TEST(StoreWriterChild, DISABLED_Write) {
  const auto store = Store::open(std::getenv("AERIE_TEST_DIR"));
  try {
    write_parts(store, all_parts(store), small_policy());
  } catch (const base::Error& e) {
    ::_exit(static_cast<int>(e.code()));
  }
  ::_exit(0);
}

int run_child(const std::filesystem::path& dir, const std::string& fault) {
  const auto pid = ::fork();
  if (pid == 0) {
    ::setenv("AERIE_FAULT", fault.c_str(), 1);
    ::setenv("AERIE_TEST_DIR", dir.c_str(), 1);
    ::execl("/proc/self/exe", "child", "--gtest_filter=StoreWriterChild.*", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
            nullptr);
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(StoreWriter, EveryFaultPointLeavesAStoreThatResumes) {
  struct Case {
    const char* fault;
    int code;
    std::int64_t least_done, most_done;  // groups of at most 3 samples
  };
  for (const auto& c : {Case{"store.after_data_write:0:1:kill", 137, 0, 0}, Case{"store.after_data_sync:0:1:kill", 137, 0, 0},
                        Case{"store.after_state_write:0:1:kill", 137, 1, 3}, Case{"store.after_data_write:0:3:kill", 137, 2, 6},
                        Case{"store.after_data_sync:0:3:kill", 137, 2, 6}, Case{"file.fdatasync:0:1:eio", 74, 0, 0},
                        Case{"file.pwrite:0:5:enospc", 74, 0, 0}, Case{"store.sync_before_trust:0:1:eio", 74, 0, 0}}) {
    const TempDir dir;
    auto store = create_small(dir / "s");
    EXPECT_EQ(run_child(dir / "s", c.fault), c.code) << c.fault;
    store.refresh();
    EXPECT_GE(store.counts().done, c.least_done) << c.fault;
    EXPECT_LE(store.counts().done, c.most_done) << c.fault;
    EXPECT_TRUE(verifies(dir / "s")) << c.fault;
    write_parts(store, all_parts(store), small_policy());
    store.refresh();
    EXPECT_EQ(store.counts().done, 20) << c.fault;
    EXPECT_TRUE(verifies(dir / "s")) << c.fault;
  }
}

}  // namespace
}  // namespace aerie::test
