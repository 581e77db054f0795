// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/host.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace aerie::base {
namespace {
std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}
std::int64_t own_start_ticks() {
  std::ifstream in("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto close = text.rfind(')');  // the command may hold spaces and brackets
  if (close == std::string::npos) return 0;
  std::istringstream rest(text.substr(close + 1));
  std::string field;
  for (int i = 3; i <= 22 && rest >> field; ++i)
    if (i == 22) return std::strtoll(field.c_str(), nullptr, 10);
  return 0;
}
}  // namespace

std::int64_t own_pid_namespace() {
  struct stat st {};
  return ::stat("/proc/self/ns/pid", &st) == 0 ? static_cast<std::int64_t>(st.st_ino) : 0;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

ProcessIdentity this_process() {
  ProcessIdentity id;
  id.host = host_name();
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id.boot_id;
  id.pid = ::getpid();
  id.start_ticks = own_start_ticks();
  const auto array_job = environment("SLURM_ARRAY_JOB_ID");
  id.job = array_job.empty() ? environment("SLURM_JOB_ID") : array_job + "_" + environment("SLURM_ARRAY_TASK_ID");
  id.restart_count = std::atoi(environment("SLURM_RESTART_COUNT").c_str());
  id.pid_namespace = own_pid_namespace();
  return id;
}

std::string pid_text(const ProcessIdentity& p) {
  const bool as_the_machine_has_it = p.pid_namespace == 0 || p.pid_namespace == initial_pid_namespace;
  return as_the_machine_has_it ? fmt::format("pid {}", p.pid) : fmt::format("pid {} in PID namespace {}", p.pid, p.pid_namespace);
}

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string utc_now() {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::time_t s = static_cast<std::time_t>(ms / 1000);
  std::tm tm{};
  ::gmtime_r(&s, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                     tm.tm_min, tm.tm_sec, ms % 1000);
}

}  // namespace aerie::base
