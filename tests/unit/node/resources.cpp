// SPDX-License-Identifier: Apache-2.0
// Resources of trees that the test makes, and of this machine.
#include <aerie/node/resources.hpp>

#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "temp_dir.hpp"

namespace {
using namespace aerie;
namespace fs = std::filesystem;

struct Resources : testing::Test {
  test::TempDir root;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  Resources() { write("proc/meminfo", "MemTotal:  4000 kB\nMemFree:   9 kB\nMemAvailable:  3000 kB\n"); }
  std::int64_t available() const { return node::look_at_resources(root.path()).memory_available.value_or(-1); }
};

TEST_F(Resources, without_a_limit_it_is_the_machines) {
  write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(available(), 3000 * 1024);
  EXPECT_EQ(node::look_at_resources(root.path()).memory_total, 4000 * 1024);
}

TEST_F(Resources, the_tightest_group_above_counts_and_file_pages_are_free) {
  write("proc/self/cgroup", "1:name=systemd:/x\n0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "500\n");
  write("sys/fs/cgroup/job/memory.max", "2000\n");
  write("sys/fs/cgroup/job/memory.current", "900\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 100\nfile 300\n");
  EXPECT_EQ(available(), 2000 - 900 + 300);
  write("sys/fs/cgroup/job/step/memory.max", "700\n");
  EXPECT_EQ(available(), 200);
  write("sys/fs/cgroup/job/step/memory.current", "800\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(Resources, version_1) {
  write("proc/self/cgroup", "7:memory:/job\n3:cpu:/other\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "400");
  write("sys/fs/cgroup/memory/job/memory.stat", "total_cache 50\n");
  EXPECT_EQ(available(), 650);
}

TEST_F(Resources, what_is_missing_is_empty) {
  const test::TempDir nothing;
  const auto r = node::look_at_resources(nothing.path());
  EXPECT_FALSE(r.memory_total || r.memory_available || r.tmp_free || r.shm_free);
}

TEST_F(Resources, this_machine) {
  const auto r = node::look_at_resources();
  EXPECT_GT(r.memory_total.value_or(0), 1 << 20);
  EXPECT_GT(r.memory_available.value_or(0), 0);
  EXPECT_TRUE(r.tmp_free);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  auto less = before;
  less.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &less), 0);
  EXPECT_EQ(node::look_at_resources().pinned_limit, 4096);
  EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}
}  // namespace
