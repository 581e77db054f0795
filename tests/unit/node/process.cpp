// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/host.hpp>
#include <aerie/node/process.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
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
  EXPECT_EQ(node::end_process(pid, p->start_ticks, 1), node::Ending::gone);
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

TEST(EndProcess, Term) {
  Child child("echo ready; " + loops);
  EXPECT_EQ(node::end_process(child.pid(), child.ticks(), 10), node::Ending::ended);
  EXPECT_EQ(child.wait(), SIGTERM);
}
TEST(EndProcess, KillWhenTermIsIgnored) {
  Child child("trap '' TERM; echo ready; " + loops);
  EXPECT_EQ(node::end_process(child.pid(), child.ticks(), 0.2), node::Ending::killed);
  EXPECT_EQ(child.wait(), SIGKILL);
}
TEST(EndProcess, OneThatIsStopped) {
  Child child("echo ready; " + loops);
  ::kill(child.pid(), SIGSTOP);
  EXPECT_EQ(node::end_process(child.pid(), child.ticks(), 10), node::Ending::ended);
  EXPECT_EQ(child.wait(), SIGTERM);
}
TEST(EndProcess, RecycledPidIsLeftAlone) {
  Child child("echo ready; " + loops);
  for (const auto wrong : {child.ticks() - 1, child.ticks() + 1, std::int64_t{0}})
    EXPECT_EQ(node::end_process(child.pid(), wrong, 0.1), node::Ending::gone);
  EXPECT_TRUE(child.alive());
}
TEST(EndProcess, NoNumberIsNoGrace) {
  Child child("trap '' TERM; echo ready; " + loops);
  EXPECT_EQ(node::end_process(child.pid(), child.ticks(), std::nan("")), node::Ending::killed);
}
TEST(EndProcess, NoSuchProcess) {
  EXPECT_EQ(node::end_process(1 << 30, 1, 0.1), node::Ending::gone);
  EXPECT_EQ(node::end_process(0, 1, 0.1), node::Ending::gone);
  EXPECT_EQ(node::end_process(-1, 1, 0.1), node::Ending::gone);
}
}  // namespace
