// SPDX-License-Identifier: Apache-2.0
// aerie-preflight as job scripts start it: exit codes, table, the object that preflight.md describes, what the ledger keeps.
#include <chrono>
#include <fstream>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include "fake_gpus.hpp"
#include "fixture.hpp"
#include "sleeper.hpp"

namespace {
using namespace aerie;
using base::Json;

struct Program : testing::Test {
  Program() {
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"})
      ::setenv(name, "1", 1);
    ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "AERIE_END_TIME"}) ::unsetenv(name);
  }
  test::Ended preflight(const std::string& flags, int ranks = 1) {
    const auto alone = fmt::format("{} --run {} {}", PREFLIGHT, run.name(), flags);
    return test::shell(ranks == 1 ? alone : fmt::format("{} {} {}", MPIEXEC, ranks, alone));
  }
  static Json check(const Json& all, const std::string& name) {
    for (const auto& c : all.at("checks"))
      if (c.at("check") == name) return c;
    ADD_FAILURE() << "no check " << name;
    return {};
  }
  Json last_line() const { return run.ledger().back(); }

  test::TempDir dir;
  test::Run run{dir};
  test::FakeGpus fake{test::sound_gpus(2)};
};

TEST_F(Program, sound_gpus_end_0_and_are_recorded_in_short) {
  for (const int ranks : {1, 2}) {
    const auto e = preflight("--gpus 2 --nodes 1 --phase train", ranks);
    EXPECT_EQ(e.code, 0) << e.err << e.out;
    EXPECT_NE(e.out.find("gpus           PASS    2 x NVIDIA H200 140 GiB on each node"), std::string::npos) << e.out;
    const auto line = last_line();
    EXPECT_EQ(line.at("phase"), "preflight");
    EXPECT_EQ(line.at("state"), "complete");
    EXPECT_EQ(line.at("evidence").at("version"), 2);
    EXPECT_FALSE(check(line.at("evidence"), "gpus").contains("details"));
  }
}

TEST_F(Program, a_process_on_the_gpus_ends_69_and_is_named) {
  const test::Sleeper holder;
  auto machine = test::sound_gpus(2);
  machine["gpus"][1]["processes"] = {{{"pid", holder.pid()}, {"bytes", std::int64_t{7} << 30}}};
  fake.now(machine);
  const auto e = preflight("--json", 2);
  EXPECT_EQ(e.code, 69) << e.err;
  EXPECT_NE(e.err.find(fmt::format("error: preflight: gpu-memory: ")), std::string::npos) << e.err;
  EXPECT_NE(e.err.find(fmt::format("pid {} ", holder.pid())), std::string::npos) << e.err;
  EXPECT_EQ(e.json().at("result"), "FAIL");
  EXPECT_EQ(check(e.json(), "gpu-memory").at("details").at("nodes").at(0).at("processes").at(0).at("pid"), holder.pid());
  EXPECT_EQ(last_line().at("state"), "failed");
  EXPECT_TRUE(check(last_line().at("evidence"), "gpu-memory").contains("details"));
}

TEST_F(Program, what_this_run_left_is_told_from_a_strangers) {
  // A program of ours by its name and arguments, that does nothing.
  const auto name = (dir / "aerie-train").string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/bin/bash", name.c_str(), "-c", "kill -STOP $$", "--run", run.name().c_str(), nullptr);
    ::_exit(1);
  }
  const auto cmdline = fmt::format("/proc/{}/cmdline", pid);
  while (test::read(cmdline).find("--run") == std::string::npos) ::usleep(1000);
  auto machine = test::sound_gpus(1);
  machine["gpus"][0]["processes"] = {{{"pid", pid}, {"bytes", 1 << 30}}};
  fake.now(machine);
  const auto e = preflight("--json");
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(e.code, 69) << e.err;
  const auto memory = check(e.json(), "gpu-memory");
  EXPECT_EQ(memory.at("details").at("nodes").at(0).at("processes").at(0).at("of_this_run"), true) << memory.dump(1);
  EXPECT_EQ(memory.at("advice"), "aerie recover " + run.name());
}

TEST_F(Program, a_warning_ends_0_and_with_strict_69) {
  auto machine = test::sound_gpus(2);
  machine["gpus"][0]["throttle"] = 64;
  fake.now(machine);
  EXPECT_EQ(preflight("").code, 0);
  EXPECT_EQ(last_line().at("evidence").at("result"), "WARN");
  EXPECT_EQ(last_line().at("state"), "complete");
  const auto e = preflight("--strict");
  EXPECT_EQ(e.code, 69);
  EXPECT_EQ(last_line().at("state"), "failed");
}

TEST_F(Program, wrong_flags_are_refused) {
  EXPECT_EQ(preflight("--phase nonsense").code, 2);
  EXPECT_EQ(preflight("--phase train --after train").code, 2);
  EXPECT_EQ(preflight("--gpus -1").code, 2);
}

TEST_F(Program, a_check_that_hangs_ends_69_and_is_named) {
  for (const int ranks : {1, 2})
    for (const std::string name : {"space", "mpi"}) {
      ::setenv("AERIE_FAULT", fmt::format("preflight.{}:{}:1:stall", name, ranks - 1).c_str(), 1);
      ::setenv("AERIE_CHECK_LIMIT_SECONDS", "2", 1);
      const auto began = std::chrono::steady_clock::now();
      const auto e = preflight("--phase train", ranks);
      const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      EXPECT_EQ(e.code, 69) << ranks << " ranks, " << name << ": " << e.err;
      EXPECT_NE(e.err.find(fmt::format("preflight: {} did not end in 2 s, seen on ", name)), std::string::npos) << e.err;
      EXPECT_LT(took, 20) << ranks << " ranks, " << name;  // the limit, and a launcher that ends the other rank
    }
  ::setenv("AERIE_CHECK_LIMIT_SECONDS", "soon", 1);
  ::unsetenv("AERIE_FAULT");
  EXPECT_EQ(preflight("").code, 2);
  ::unsetenv("AERIE_CHECK_LIMIT_SECONDS");
}

TEST_F(Program, what_phases_need_is_derived_from_the_run) {
  const auto needed = [&](const std::string& flags) {
    const auto e = preflight("--json " + flags);
    EXPECT_EQ(e.code, 0) << e.err;
    const auto all = e.json();
    return std::pair{check(all, "space").at("details").at("needed_bytes").get<std::int64_t>(),
                     check(all, "host-memory").at("details").at("needed_bytes").get<std::int64_t>()};
  };
  EXPECT_EQ(needed(""), std::pair(std::int64_t{0}, std::int64_t{0}));
  const auto [store, weights] = needed("--phase extract --ranks-per-node 1");
  EXPECT_GT(store, 0);
  EXPECT_GT(weights, 0);
  EXPECT_EQ(needed("--phase extract --ranks-per-node 3").second, 3 * weights);
  EXPECT_EQ(needed("--phase extract --target.stream=layers").second, 0);
  // A token is three states and the last one, two bytes a value or one with four scales, and id and mask.
  const auto fp8 = needed("--phase extract --extract.dtype=fp8").first;
  constexpr std::int64_t width = 16;
  EXPECT_EQ(store * (4 * width + 16 + 5), fp8 * (8 * width + 5));
  // Checkpoints: as many as are kept and one more, without those that are there.
  const auto four = needed("--phase train --train.keep=3").first;
  EXPECT_EQ(needed("--phase train --train.keep=7").first, 2 * four);
  run.make_checkpoint(1);
  EXPECT_EQ(needed("--phase train --train.keep=3").first, 3 * four / 4);
  EXPECT_GT(needed("--phase export").first, 0);
  // A store takes its space when it is made.
  run.make_store({0, 1});
  EXPECT_EQ(needed("--phase extract").first, 0);
  std::filesystem::remove(run.path() / "store/parts/part-00000.h5");
  EXPECT_GT(needed("--phase extract").first, 0);
}

TEST_F(Program, after_a_phase_the_memory_is_recorded) {
  auto e = preflight("--after train", 2);
  EXPECT_EQ(e.code, 0) << e.err;
  auto line = last_line();
  EXPECT_EQ(line.at("kind"), "evidence");
  EXPECT_EQ(line.at("what"), "gpu-memory");
  EXPECT_EQ(line.at("details").at("phase"), "train");
  EXPECT_EQ(line.at("details").at("result"), "PASS");
  EXPECT_EQ(line.at("details").at("nodes").at(0).at("gpus").at(1).at("used_bytes"), 0);

  const test::Sleeper left;
  auto machine = test::sound_gpus(1);
  machine["gpus"][0]["processes"] = {{{"pid", left.pid()}, {"bytes", 1 << 30}}};
  fake.now(machine);
  e = preflight("--after extract --wait 0 --quiet");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out, "");
  EXPECT_NE(e.err.find(fmt::format("pid {} ", left.pid())), std::string::npos) << e.err;
  line = last_line();
  EXPECT_EQ(line.at("details").at("result"), "WARN");
  EXPECT_EQ(line.at("details").at("nodes").at(0).at("processes").at(0).at("pid"), left.pid());
  EXPECT_EQ(preflight("--after extract --wait 0 --strict").code, 69);

  fake.now({{"init", 9}});
  const auto lines = run.ledger().size();
  EXPECT_EQ(preflight("--after eval").code, 0);
  EXPECT_EQ(run.ledger().size(), lines);  // nothing to record
}

/// "a", "nodes[].b" ... of an object.
void key_paths(const Json& value, const std::string& prefix, std::set<std::string>& out) {
  if (value.is_array())
    for (const auto& item : value) key_paths(item, prefix + "[]", out);
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.items()) {
    const auto path = prefix.empty() ? key : prefix + "." + key;
    out.insert(path);
    if (path != "checks[].details") key_paths(item, path, out);
  }
}

TEST_F(Program, checks_and_keys_are_those_documented) {
  const auto all = preflight("--json").json();
  auto after = preflight("--after train --json").json();
  std::set<std::string> written, keys, checks, named;
  key_paths(all, "", written);
  key_paths(after, "", written);
  for (const auto& c : all.at("checks")) checks.insert(c.at("check").get<std::string>());
  std::ifstream in(std::string(AERIE_SOURCE_DIR) + "/docs/reference/preflight.md");
  const std::regex key_row("^\\| `([a-z_.\\[\\]]+)` \\| (text|integer|list|object|true)[^|]*\\|.*"),
      check_row("^\\| `([a-z-]+)` \\|.*");
  std::map<std::string, std::string> details;  // what the second table says of a check
  std::string section;
  for (std::string line; std::getline(in, line);) {
    std::smatch m;
    if (line.starts_with("## ")) section = line;
    if (section.starts_with("## JSON") && std::regex_match(line, m, key_row)) keys.insert(m[1]);
    if (section.starts_with("## Checks") && std::regex_match(line, m, check_row)) named.insert(m[1]);
    if (section.starts_with("## JSON") && !std::regex_match(line, m, key_row) && line.starts_with("| `"))
      for (const auto& name : checks)
        if (line.substr(0, line.find('|', 2)).find('`' + name + '`') != std::string::npos) details[name] = line;
  }
  EXPECT_EQ(written, keys);
  EXPECT_EQ(checks, named);
  for (const auto& c : all.at("checks")) {
    std::set<std::string> paths;
    key_paths(c.at("details"), "", paths);
    for (const auto& path : paths) {
      const auto key = path.substr(path.rfind('.') + 1);
      if (key == "host" || path.starts_with("usual.") || key == "nodes") continue;
      const auto& line = details[c.at("check")];
      const bool told = line.find('`' + key + '`') != std::string::npos || line.find('`' + path + '`') != std::string::npos ||
                        line.find('`' + path + "[]`") != std::string::npos;
      EXPECT_TRUE(told) << "preflight.md does not say what " << path << " of " << c.at("check") << " is";
    }
  }
}
}  // namespace
