// SPDX-License-Identifier: Apache-2.0
#include "slurm_queue.hpp"

#include <aerie/base/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <sys/wait.h>

#include "shell_word.hpp"

namespace aerie::apps {
namespace {
/// "12" of "12_3"; nothing for what is no job id.
std::string job_number(const std::string& id) {
  const auto number = id.substr(0, id.find('_'));
  const bool digits = !number.empty() && std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? number : std::string();
}

/// Job ids begin anew on a new cluster: a job of the submission is known by its script too.
bool is_another(const report::RunState& state, const std::string& number, const std::string& command) {
  const auto it = std::find_if(state.jobs.begin(), state.jobs.end(), [&](const auto& j) { return job_number(j.job) == number; });
  return it != state.jobs.end() && !it->script.empty() && !command.starts_with(it->script);
}

/// JobHeldUser, JobHeldAdmin, JobHoldMaxRequeue, "job requeued in held state", "launch failed requeued held" ...
bool is_hold(const std::string& reason) {
  constexpr std::array words{"Held", "held", "Hold"};
  return std::any_of(words.begin(), words.end(), [&](auto w) { return reason.find(w) != std::string::npos; });
}
}  // namespace

CommandEnd capture_output(const std::vector<std::string>& words, bool with_stderr) {
  std::string line;
  for (const auto& w : words) line += shell_word(w) + " ";
  CommandEnd end;
  FILE* pipe = ::popen((line + "</dev/null" + (with_stderr ? " 2>&1" : "")).c_str(), "r");
  if (!pipe) throw base::IoError("cannot start " + words[0]);
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) end.out.append(buffer, n);
  const int status = ::pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (!end.out.empty() && end.out.back() == '\n') end.out.pop_back();
  return end;
}

std::optional<Queue> jobs_in_queue(const report::RunState& state) {
  std::set<std::string> ids;
  for (const auto& j : state.jobs) ids.insert(job_number(j.job));
  for (const auto& a : state.attempts)
    if (a.end.empty()) ids.insert(job_number(a.job));
  ids.erase("");
  if (ids.empty()) return std::nullopt;
  std::string list;
  for (const auto& id : ids) list += (list.empty() ? "" : ",") + id;
  std::vector<std::string> words{"env"};
  for (const auto* name :
       {"SQUEUE_STATES", "SQUEUE_PARTITION", "SQUEUE_USERS", "SQUEUE_ACCOUNT", "SQUEUE_QOS", "SQUEUE_NAMES", "SLURM_CLUSTERS"})
    words.insert(words.end(), {"-u", name});
  // Each task on a line of its own (--array): in a common line nobody can tell which of them is held.
  words.insert(words.end(), {"timeout", "-k", "1", "5", "squeue", "--all", "--array", "-h", "-j", list, "-O",
                             "JobArrayID:|,JobID:|,State:|,RestartCnt:|,Command:|,Reason:|"});
  const auto end = capture_output(words, true);
  Queue out;
  if (end.code != 0) {  // so it ends when it is asked for one job alone and that has been forgotten
    if (end.out.find("Invalid job id") != std::string::npos) return out;
    return std::nullopt;
  }
  static constexpr std::array ended{"COMPLETED", "CANCELLED", "FAILED",   "TIMEOUT", "PREEMPTED",
                                    "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REVOKED", "OUT_OF_MEMORY"};
  std::istringstream in(end.out);
  for (std::string row; std::getline(in, row);) {
    std::istringstream fields(row);
    std::string id, number, job_state, restarts, command, reason;
    for (auto* field : {&id, &number, &job_state, &restarts, &command, &reason}) std::getline(fields, *field, '|');
    if (job_number(id).empty() || is_another(state, job_number(id), command)) continue;
    if (std::find(ended.begin(), ended.end(), job_state) != ended.end()) continue;
    if (!is_hold(reason)) reason.clear();
    out[id] = {job_state, std::atoi(restarts.c_str()), number, reason};
  }
  return out;
}

}  // namespace aerie::apps
