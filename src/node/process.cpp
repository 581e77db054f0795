// SPDX-License-Identifier: Apache-2.0
#include <aerie/node/process.hpp>

#include <aerie/base/host.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.hpp"

namespace aerie::node {
namespace {
namespace fs = std::filesystem;

std::string read_file(std::int64_t pid, const char* name) {  // empty also when it may not be read
  std::ifstream in(fmt::format("/proc/{}/{}", pid, name));
  return {std::istreambuf_iterator<char>(in), {}};
}
std::vector<std::string> split_zero(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, '\0');) out.push_back(word);
  return out;
}
std::string user_name(std::int64_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16384);
  ::getpwuid_r(static_cast<uid_t>(uid), &entry, buffer.data(), buffer.size(), &found);
  return found ? found->pw_name : std::to_string(uid);
}
/// State, parent, start time; the name may hold spaces and brackets.
bool read_stat(Process& p, std::string& name) {
  const auto text = read_file(p.pid, "stat");
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  int i = 3;
  for (; i <= 22 && rest >> field; ++i) {
    if (i == 3) p.state = field[0];
    if (i == 4) p.parent = std::atoll(field.c_str());
    if (i == 22) p.start_ticks = std::atoll(field.c_str());
  }
  return i > 22;
}
std::string job_in_environment(std::int64_t pid) {
  std::string job, array, task;
  for (const auto& entry : split_zero(read_file(pid, "environ"))) {
    if (entry.starts_with("SLURM_JOB_ID=")) job = entry.substr(13);
    if (entry.starts_with("SLURM_ARRAY_JOB_ID=")) array = entry.substr(19);
    if (entry.starts_with("SLURM_ARRAY_TASK_ID=")) task = entry.substr(20);
  }
  return array.empty() ? job : array + "_" + task;
}
const char* state_name(char state) {
  switch (state) {
    case 'R':
      return "R (running)";
    case 'S':
      return "S (sleeping)";
    case 'D':
      return "D (waiting in the kernel, not to be interrupted)";
    case 'T':
      return "T (stopped by a signal)";
    case 't':
      return "t (held by a debugger)";
    case 'Z':
      return "Z (ended, not reaped)";
    default:
      return "?";
  }
}
/// `unshare --pid` without --mount-proc leaves the /proc of the namespace before: its numbers are not ours.
bool proc_shows_this_namespace() {
  std::error_code error;
  return fs::read_symlink("/proc/self", error) == std::to_string(::getpid());
}
/// The innermost function of "[<0>] fuse_wait+0x1/0x2", which only root may read.
std::string top_of_stack(const std::string& stack) {
  const auto begin = stack.find("] "), end = stack.find('+');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return stack.substr(begin + 2, end - begin - 2);
}
}  // namespace

std::optional<Process> look_at(std::int64_t pid) {
  Process p;
  p.pid = pid;
  std::string name;
  struct stat st {};
  if (pid <= 0 || ::stat(fmt::format("/proc/{}", pid).c_str(), &st) != 0 || !read_stat(p, name)) return std::nullopt;
  p.uid = st.st_uid;
  p.user = user_name(p.uid);
  p.arguments = split_zero(read_file(pid, "cmdline"));
  p.command = p.arguments.empty() ? "[" + name + "]" : fmt::format("{}", fmt::join(p.arguments, " "));
  // Whoever started it chose the text: it must not steer a terminal, or forge lines of a table.
  std::replace_if(
      p.command.begin(), p.command.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  auto group = parse_cgroup(read_file(pid, "cgroup"));
  p.cgroup = std::move(group.path);
  p.unit = std::move(group.unit);
  p.container = std::move(group.container);
  p.job = group.job.empty() ? job_in_environment(pid) : std::move(group.job);
  Process again;
  again.pid = pid;
  if (!read_stat(again, name) || again.start_ticks != p.start_ticks) return std::nullopt;  // it went while it was looked at
  return p;
}

Found find(const Recorded& r) {
  const bool elsewhere = r.pid_namespace != 0 && r.pid_namespace != base::own_pid_namespace();
  if (elsewhere || !proc_shows_this_namespace()) return {Sight::hidden, {}};
  auto p = look_at(r.pid);
  if (!p) {
    // With hidepid /proc leaves out other users' processes; the kernel still tells "not yours" from "none".
    const bool somebody = r.pid > 0 && (::kill(static_cast<pid_t>(r.pid), 0) == 0 || errno == EPERM);
    return {somebody ? Sight::hidden : Sight::gone, {}};
  }
  if (!p->exists() || p->start_ticks != r.start_ticks) return {Sight::gone, {}};
  return {Sight::there, std::move(*p)};
}

std::vector<Process> all_processes() {
  std::vector<Process> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto name = entry.path().filename().string();
    std::int64_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (auto p = look_at(pid)) out.push_back(std::move(*p));
  }
  std::sort(out.begin(), out.end(), [](const Process& a, const Process& b) { return a.pid < b.pid; });
  return out;
}

bool sees_pids_of_the_driver() { return std::getenv("AERIE_NVML") || base::own_pid_namespace() == base::initial_pid_namespace; }

std::string how_to_stop(const Process& p) {
  const auto engine = p.container.substr(0, p.container.find(' '));
  const auto id = p.container.substr(std::min(p.container.size(), engine.size() + 1));
  if (engine == "kubernetes") return fmt::format("kubectl delete pod of container {}", id);
  if (!engine.empty()) return fmt::format("{} stop {}", engine, id);
  if (!p.job.empty()) return "scancel " + p.job;
  if (p.unit.empty() || p.unit.starts_with("user@")) return fmt::format("kill {}", p.pid);
  if (p.cgroup.find("/user@") != std::string::npos) return fmt::format("systemctl --user --machine={}@ stop {}", p.user, p.unit);
  return "systemctl stop " + p.unit;
}

std::string waits_for(std::int64_t pid) {
  Process p;
  p.pid = pid;
  std::string name;
  if (!read_stat(p, name)) return {};
  auto function = read_file(pid, "wchan");
  if (function == "0") function.clear();
  if (function.empty()) function = top_of_stack(read_file(pid, "stack"));
  std::string out = state_name(p.state);
  if (!function.empty()) out += " in " + function;
  return out;
}

std::vector<std::string> open_files(std::int64_t pid) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), ignored)) {
    const auto path = fs::read_symlink(entry.path(), ignored).string();
    if (path.starts_with("/")) out.push_back(path);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string run_directory_of(const Process& p) {
  if (p.arguments.empty() || !fs::path(p.arguments[0]).filename().string().starts_with("aerie")) return {};
  const auto& words = p.arguments;
  std::string run;
  for (std::size_t i = 1; i < words.size() && run.empty(); ++i) {
    if (words[i] == "--run" && i + 1 < words.size())
      run = words[i + 1];
    else if (words[i].starts_with("--run="))
      run = words[i].substr(6);
  }
  std::error_code error;
  const auto here = fs::read_symlink(fmt::format("/proc/{}/cwd", p.pid), error);
  const auto place = [&](const std::string& word) {
    if (word.empty() || (here.empty() && !fs::path(word).is_absolute())) return std::string();
    const auto full = fs::canonical(here / word, error);
    return error || !fs::exists(full / "aerie.toml", error) ? std::string() : full.string();
  };
  if (!run.empty()) return place(run);
  for (std::size_t i = 1; i < words.size(); ++i)  // it may also stand alone: the argument that is a run
    if (!words[i].starts_with("-"))
      if (auto found = place(words[i]); !found.empty()) return found;
  return {};
}

}  // namespace aerie::node
