// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/host.hpp>
#include <aerie/node/process.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <deque>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temp_dir.hpp"

namespace {
using namespace aerie;
using namespace std::chrono_literals;

/// A shell of our own; ended and reaped with the test.
class Child {
 public:
  /// `script` says "ready" on stdout when it is.
  explicit Child(const std::string& script, const std::string& name = "bash", std::vector<std::string> more = {}) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], 1);
      ::close(ends[0]);
      std::vector<const char*> words{name.c_str(), "-c", script.c_str()};
      for (const auto& m : more) words.push_back(m.c_str());
      words.push_back(nullptr);
      ::execv("/bin/bash", const_cast<char**>(words.data()));
      ::_exit(127);
    }
    ::close(ends[1]);
    char text[6] = {};
    EXPECT_EQ(::read(ends[0], text, 6), 6) << script;
    ::close(ends[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    if (!reaped_) ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  /// The signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    reaped_ = true;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  std::int64_t ticks() const { return node::look_at(pid_)->start_ticks; }

 private:
  pid_t pid_ = 0;
  bool reaped_ = false;
};
const std::string loops = "while :; do sleep 0.05; done";

TEST(Process, ItselfAsTheLedgerKnowsIt) {
  const auto self = base::this_process();
  const auto p = node::look_at(self.pid);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->start_ticks, self.start_ticks);
  EXPECT_EQ(p->uid, ::geteuid());
  EXPECT_EQ(p->parent, ::getppid());
  EXPECT_NE(p->command.find("test_unit_node"), std::string::npos);
  EXPECT_TRUE(p->exists());
}
TEST(Process, NoneThere) {
  EXPECT_FALSE(node::look_at(0));
  EXPECT_FALSE(node::look_at(-1));
  EXPECT_FALSE(node::look_at(1 << 30));
  EXPECT_EQ(node::waits_for(1 << 30), "");
}
TEST(Process, ZombieIsNotThere) {
  const auto pid = ::fork();
  if (pid == 0) ::_exit(0);
  std::optional<node::Process> p;
  for (int i = 0; i < 200 && !((p = node::look_at(pid)) && p->state == 'Z'); ++i) std::this_thread::sleep_for(10ms);
  ASSERT_TRUE(p);
  EXPECT_FALSE(p->exists());
  EXPECT_EQ(node::end_processes({*p}, 1).at(0).ending, node::Ending::gone);
  ::waitpid(pid, nullptr, 0);
}
TEST(Process, NameWithBracketsAndSpaces) {
  const test::TempDir dir;
  const auto odd = dir.path() / "a) b (c";
  std::filesystem::copy("/bin/bash", odd);
  Child child("echo ready; exec '" + odd.string() + "' -c 'echo; " + loops + "'");
  std::optional<node::Process> p;
  for (int i = 0; i < 200 && !((p = node::look_at(child.pid())) && p->command.starts_with(odd.string())); ++i)
    std::this_thread::sleep_for(10ms);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->parent, ::getpid());
  EXPECT_GT(p->start_ticks, 0);
}
TEST(Process, AmongAll) {
  Child child("echo ready; " + loops);
  int found = 0;
  for (const auto& p : node::all_processes()) found += p.pid == child.pid() || p.pid == ::getpid();
  EXPECT_EQ(found, 2);
}
TEST(Process, CommandCannotSteerATerminal) {
  Child child("echo ready; " + loops, "bash", {"\x1b[31m", "a\nb"});
  EXPECT_NE(node::look_at(child.pid())->command.find(" ?[31m a?b"), std::string::npos);
  EXPECT_EQ(node::look_at(child.pid())->arguments.back(), "a\nb");
}
TEST(Process, SlurmJobFromTheEnvironment) {
  Child plain("export SLURM_JOB_ID=12; echo ready; exec sleep 60");
  Child task("export SLURM_JOB_ID=15 SLURM_ARRAY_JOB_ID=12 SLURM_ARRAY_TASK_ID=3; echo ready; exec sleep 60");
  const auto job = [](pid_t pid) {
    std::string j;
    for (int i = 0; i < 200 && j.empty(); ++i, std::this_thread::sleep_for(10ms)) j = node::look_at(pid)->job;
    return j;
  };
  EXPECT_EQ(job(plain.pid()), "12");
  EXPECT_EQ(job(task.pid()), "12_3");
  EXPECT_EQ(node::how_to_stop(*node::look_at(plain.pid())), "scancel 12");
}

TEST(HowToStop, TheOneWhoStartedItIsNamed) {
  node::Process p;
  p.pid = 4711;
  p.user = "ada";
  EXPECT_EQ(node::how_to_stop(p), "kill 4711");
  p.unit = "vllm.service", p.cgroup = "/system.slice/vllm.service";
  EXPECT_EQ(node::how_to_stop(p), "systemctl stop vllm.service");
  p.cgroup = "/user.slice/user-7.slice/user@7.service/app.slice/vllm.service";
  EXPECT_EQ(node::how_to_stop(p), "systemctl --user --machine=ada@ stop vllm.service");
  p.job = "12";
  EXPECT_EQ(node::how_to_stop(p), "scancel 12");
  p.container = "docker 0123456789ab";
  EXPECT_EQ(node::how_to_stop(p), "docker stop 0123456789ab");
  p.container = "kubernetes 0123456789ab";
  EXPECT_NE(node::how_to_stop(p).find("kubectl"), std::string::npos);
}

TEST(WaitsFor, StateAndFunction) {
  Child child("echo ready; exec sleep 60");
  std::string text;
  for (int i = 0; i < 200 && !text.starts_with("S"); ++i, std::this_thread::sleep_for(10ms)) text = node::waits_for(child.pid());
  EXPECT_TRUE(text.starts_with("S (sleeping)")) << text;
  std::ifstream in("/proc/self/wchan");
  if (std::string own; in >> own) {  // this kernel says it
    EXPECT_NE(text.find(" in "), std::string::npos) << text;
  }
  ::kill(child.pid(), SIGSTOP);
  for (int i = 0; i < 200 && !text.starts_with("T"); ++i, std::this_thread::sleep_for(10ms)) text = node::waits_for(child.pid());
  EXPECT_TRUE(text.starts_with("T (stopped")) << text;
}

TEST(OpenFiles, OfAProcess) {
  const test::TempDir dir;
  const Child child("exec 5>'" + (dir / "lease").string() + "'; exec 6>&5; echo ready; " + loops);
  const auto files = node::open_files(child.pid());
  EXPECT_EQ(std::count(files.begin(), files.end(), std::filesystem::canonical(dir / "lease").string()), 1);
  EXPECT_TRUE(node::open_files(1 << 30).empty());
}

class RunDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir.path() / "run");
    std::ofstream(dir.path() / "run/aerie.toml") << "";
    std::filesystem::create_symlink(dir.path() / "run", dir.path() / "link");
    run = std::filesystem::canonical(dir.path() / "run").string();
  }
  std::string of(const std::string& name, std::vector<std::string> more) {
    const Child child("cd '" + dir.path().string() + "'; echo ready; " + loops, name, std::move(more));
    return node::run_directory_of(*node::look_at(child.pid()));
  }
  test::TempDir dir;
  std::string run;
};
TEST_F(RunDirectory, OfAProgram) {
  EXPECT_EQ(of("aerie-train", {"--run", run}), run);
  EXPECT_EQ(of("/opt/bin/aerie-train", {"--run=" + run}), run);
  EXPECT_EQ(of("aerie-train", {"--train.lr", "1", "run"}), run);
  EXPECT_EQ(of("aerie-train", {"--run", "link/"}), run);
}
TEST_F(RunDirectory, OfNone) {
  EXPECT_EQ(of("python3", {"--run", run}), "");
  EXPECT_EQ(of("aerie-train", {"--run", dir.path().string()}), "");
  EXPECT_EQ(of("aerie-train", {"--run", "nowhere"}), "");
  EXPECT_EQ(of("aerie-train", {}), "");
}

node::Process named(std::int64_t pid, std::int64_t start_ticks) {
  node::Process p;
  p.pid = pid, p.start_ticks = start_ticks;
  return p;
}
node::Ending end_one(std::int64_t pid, std::int64_t start_ticks, double grace_s) {
  return node::end_processes({named(pid, start_ticks)}, grace_s).at(0).ending;
}
TEST(EndProcess, Term) {
  Child child("echo ready; " + loops);
  EXPECT_EQ(end_one(child.pid(), child.ticks(), 10), node::Ending::ended);
  EXPECT_EQ(child.wait(), SIGTERM);
}
TEST(EndProcess, KillWhenTermIsIgnored) {
  Child child("trap '' TERM; echo ready; " + loops);
  EXPECT_EQ(end_one(child.pid(), child.ticks(), 0.2), node::Ending::killed);
  EXPECT_EQ(child.wait(), SIGKILL);
}
TEST(EndProcess, OneThatIsStopped) {
  Child child("echo ready; " + loops);
  ::kill(child.pid(), SIGSTOP);
  EXPECT_EQ(end_one(child.pid(), child.ticks(), 10), node::Ending::ended);
  EXPECT_EQ(child.wait(), SIGTERM);
}
TEST(EndProcess, RecycledPidIsLeftAlone) {
  Child child("echo ready; " + loops);
  for (const auto wrong : {child.ticks() - 1, child.ticks() + 1, std::int64_t{0}})
    EXPECT_EQ(end_one(child.pid(), wrong, 0.1), node::Ending::gone);
  EXPECT_TRUE(child.alive());
}
TEST(EndProcess, NoNumberIsNoGrace) {
  Child child("trap '' TERM; echo ready; " + loops);
  EXPECT_EQ(end_one(child.pid(), child.ticks(), std::nan("")), node::Ending::killed);
}
TEST(EndProcess, NoSuchProcess) {
  EXPECT_EQ(end_one(1 << 30, 1, 0.1), node::Ending::gone);
  EXPECT_EQ(end_one(0, 1, 0.1), node::Ending::gone);
  EXPECT_EQ(end_one(-1, 1, 0.1), node::Ending::gone);
  EXPECT_TRUE(node::end_processes({}, 10).empty());
}
TEST(EndProcess, ManyShareOneGrace) {
  constexpr double grace_s = 1;
  std::deque<Child> deaf;
  std::vector<node::Process> all;
  for (int i = 0; i < 4; ++i) {
    deaf.emplace_back("trap '' TERM; echo ready; " + loops);
    all.push_back(named(deaf.back().pid(), deaf.back().ticks()));
  }
  Child willing("echo ready; " + loops), recycled("echo ready; " + loops);
  all.insert(all.begin() + 1, named(willing.pid(), willing.ticks()));
  all.push_back(named(recycled.pid(), recycled.ticks() + 1));
  const auto began = std::chrono::steady_clock::now();
  const auto ends = node::end_processes(all, grace_s);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GE(took, grace_s) << "the deaf had their grace";
  EXPECT_LT(took, 2 * grace_s) << "and all had the same one";
  using E = node::Ending;
  const std::vector<E> expected{E::killed, E::ended, E::killed, E::killed, E::killed, E::gone};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(ends.at(i).ending, expected[i]) << i;
  for (auto& d : deaf) EXPECT_EQ(d.wait(), SIGKILL);
  EXPECT_EQ(willing.wait(), SIGTERM) << "not made to wait for the deaf, and not killed with them";
  EXPECT_TRUE(recycled.alive());
}
TEST(EndProcess, ARefusalIsOfOneAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to become somebody who may not";
  Child ours("echo ready; " + loops), theirs("echo ready; " + loops);
  const std::vector<node::Process> both{named(ours.pid(), ours.ticks()), named(theirs.pid(), theirs.ticks())};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto other = ::fork();
  if (other == 0) {  // nobody's right reaches neither of them
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const auto e = node::end_processes(both, 0.1);
    const char said[2] = {static_cast<char>('0' + static_cast<int>(e[0].ending)), e[1].why.empty() ? '-' : 'w'};
    ::_exit(::write(ends[1], said, 2) == 2 ? 0 : 1);
  }
  char said[2] = {};
  EXPECT_EQ(::read(ends[0], said, 2), 2);
  ::waitpid(other, nullptr, 0);
  ::close(ends[0]), ::close(ends[1]);
  EXPECT_EQ(said[0], '0' + static_cast<int>(node::Ending::refused));
  EXPECT_EQ(said[1], 'w') << "a refusal says why";
  EXPECT_TRUE(ours.alive() && theirs.alive());
}

TEST(Find, ThereGoneHidden) {
  const auto self = base::this_process();
  Child child("echo ready; " + loops);
  const auto sight = [&](std::int64_t ticks, std::int64_t space) { return node::find({child.pid(), ticks, space}).sight; };
  EXPECT_GT(self.pid_namespace, 0);
  EXPECT_EQ(sight(child.ticks(), self.pid_namespace), node::Sight::there);
  EXPECT_EQ(sight(child.ticks(), 0), node::Sight::there) << "an older record";
  EXPECT_EQ(sight(child.ticks() + 1, self.pid_namespace), node::Sight::gone) << "the pid is another's by now";
  EXPECT_EQ(sight(child.ticks(), self.pid_namespace + 1), node::Sight::hidden) << "another container's";
  EXPECT_EQ(node::find({1 << 30, 1, self.pid_namespace}).sight, node::Sight::gone);
  EXPECT_EQ(node::find({1 << 30, 1, self.pid_namespace + 1}).sight, node::Sight::hidden);
  EXPECT_EQ(node::find({0, 1, 0}).sight, node::Sight::gone);
}
/// What a process inside new namespaces sees of `outside`: two letters, of a record with and one without its namespace.
std::string seen_from(int namespaces, const node::Recorded& outside, const char* mount_type, const char* options) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe";
  const auto first = ::fork();
  if (first == 0) {
    if (::unshare(namespaces) != 0) ::_exit(::write(ends[1], "skip", 4) == 4 ? 0 : 1);
    const auto second = ::fork();  // the first of a new PID namespace is a child
    if (second == 0) {
      if (mount_type && (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                         ::mount("proc", "/proc", mount_type, 0, options) != 0))
        ::_exit(::write(ends[1], "skip", 4) == 4 ? 0 : 1);
      if (options && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(1);
      auto old = outside;
      old.pid_namespace = 0;
      const auto letter = [](node::Sight s) { return "tgh"[static_cast<int>(s)]; };
      const char said[2] = {letter(node::find(outside).sight), letter(node::find(old).sight)};
      ::_exit(::write(ends[1], said, 2) == 2 ? 0 : 1);
    }
    ::waitpid(second, nullptr, 0);
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[5] = {};
  const auto n = ::read(ends[0], text, 4);
  ::close(ends[0]);
  ::waitpid(first, nullptr, 0);
  return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(0, n)));
}
TEST(Find, FromAnotherNamespace) {
  Child child("echo ready; " + loops);
  const node::Recorded it{child.pid(), child.ticks(), base::own_pid_namespace()};
  const auto from_container = seen_from(CLONE_NEWPID | CLONE_NEWNS, it, "proc", nullptr);
  if (from_container == "skip") GTEST_SKIP() << "namespaces are not permitted here";
  EXPECT_EQ(from_container, "hg") << "without its namespace in the record it looks gone, which it is not";
  // With the /proc of the namespace before, our numbers and its are two things: nothing can be said at all.
  EXPECT_EQ(seen_from(CLONE_NEWPID | CLONE_NEWNS, it, nullptr, nullptr), "hh");
}
TEST(Find, AProcThatHidesOthersProcesses) {
  Child child("echo ready; " + loops);  // root's, looked for by nobody
  const node::Recorded it{child.pid(), child.ticks(), base::own_pid_namespace()};
  const auto seen = seen_from(CLONE_NEWNS, it, "proc", "hidepid=2");
  if (seen == "skip") GTEST_SKIP() << "namespaces or mounts are not permitted here";
  EXPECT_EQ(seen, "hh");
}
}  // namespace
