// SPDX-License-Identifier: Apache-2.0
// Ranks that play nodes: each has its own host name, GPUs (fake NVML) and resources; the run directory is one.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <utility>

#include <gtest/gtest.h>

#include <aerie/base/file.hpp>
#include <aerie/preflight/preflight.hpp>

#include "fake_gpus.hpp"
#include "temp_dir.hpp"

namespace aerie::test {

constexpr std::int64_t gib = std::int64_t{1} << 30;

class Preflight : public testing::Test {
 protected:
  Preflight() {
    for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"}) ::unsetenv(name);
    ::setenv("AERIE_NVML", "/nowhere/libnvidia-ml.so.1", 1);  // also on a machine with GPUs
    request.run = std::filesystem::path(world.broadcast(own.path().string()));
    request.version = "aerie 1";
    request.recover_command = "aerie recover RUN";
    request.limits.network_bytes = 1 << 16;
    request.limits.slow = 0.01;  // ranks that share a core wait for each other
    request.rehearsal.kernel_log = own / "kmsg";
    std::ofstream(request.rehearsal.kernel_log) << "6,1,1000,-;Linux version 6.1\n";
    node::Resources r;
    r.memory_total = 100 * gib, r.memory_available = 90 * gib, r.pinned_limit = node::unlimited;
    r.tmp_free = r.shm_free = 10 * gib;
    request.rehearsal.resources = r;
    world.barrier();
  }
  void TearDown() override { world.barrier(); }

  int rank() const { return world.rank(); }
  bool last() const { return rank() == world.size() - 1; }
  static std::string host(int rank) { return "node" + std::to_string(rank); }
  std::string last_host() const { return host(world.size() - 1); }
  void a_node_for_each_rank() { request.rehearsal.host = host(rank()); }

  std::vector<preflight::Finding> examine() {
    const auto out = preflight::examine(world, request, [](std::string_view) {});
    const auto text = preflight::to_json(out).dump();
    const auto all = world.all_gather(text);
    if (std::any_of(all.begin(), all.end(), [&](const auto& t) { return t != all[0]; })) ADD_FAILURE() << "the ranks differ";
    return out;
  }
  /// One check alone.
  preflight::Finding find(const std::string& check) {
    const auto before = std::exchange(request.only, {check});
    const auto out = examine();
    request.only = before;
    if (out.size() == 1) return out[0];
    ADD_FAILURE() << "no check " << check;
    return {};
  }
  /// "FAIL check" of all checks that did not pass; empty when all did.
  std::string verdicts() {
    std::string out;
    for (const auto& f : examine())
      if (f.result != preflight::Result::pass)
        out += (out.empty() ? "" : ", ") + std::string(preflight::result_name(f.result)) + " " + f.check;
    return out;
  }
  static bool tells(const preflight::Finding& f, const std::string& text) {
    return std::any_of(f.seen.begin(), f.seen.end(), [&](const auto& line) { return line.find(text) != std::string::npos; });
  }
  static std::string all_of(const preflight::Finding& f) {
    std::string out = f.check + " " + std::string(preflight::result_name(f.result));
    for (const auto& line : f.seen) out += "\n  " + line;
    return out + "\n  -> " + f.advice;
  }

  comm::Comm world = comm::Comm::borrow(MPI_COMM_WORLD);
  TempDir own;  // rank 0's is the run of all
  preflight::Request request;
};

#define EXPECT_TELLS(finding, text) EXPECT_TRUE(tells(finding, text)) << "missing: " << (text) << "\nin " << all_of(finding)

}  // namespace aerie::test
