// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace aerie::apps {

std::vector<std::string> launcher_words(const config::Config& config, int ranks) {
  std::vector<std::string> words;
  if (ranks <= 1) return words;
  std::istringstream in(config.run.launcher);
  for (std::string w; in >> w;) words.push_back(w);
  if (const auto name = std::filesystem::path(words.at(0)).filename(); name == "mpirun" || name == "mpiexec") {
    for (const char* w : {"-q", "--bind-to", "none"}) words.emplace_back(w);
    if (ranks > static_cast<int>(std::thread::hardware_concurrency())) words.emplace_back("--oversubscribe");
  }
  words.emplace_back("-n");
  words.push_back(fmt::format("{}", ranks));
  return words;
}

std::map<std::string, std::string> launcher_environment(int ranks) {
  std::map<std::string, std::string> env;
  const auto unless_set = [&](const char* name, const char* value) {
    if (!std::getenv(name)) env.emplace(name, value);
  };
  unless_set("OMP_NUM_THREADS", "1");
  if (::geteuid() == 0) {  // mpirun refuses to work as root unless both are set
    unless_set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    unless_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  if (ranks > static_cast<int>(std::thread::hardware_concurrency())) unless_set("OMPI_MCA_mpi_yield_when_idle", "1");
  return env;
}

}  // namespace aerie::apps
