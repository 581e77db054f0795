// SPDX-License-Identifier: Apache-2.0
// Preflight finds each thing that it looks for, on whatever rank it is wrong, and says the same on all.
#include <fstream>

#include <sys/statvfs.h>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>

#include "nodes.hpp"

namespace {
using namespace aerie;
using preflight::Result;
using test::gib;
using test::Preflight;
namespace fs = std::filesystem;

TEST_F(Preflight, a_sound_allocation_passes_and_nothing_is_left_behind) {
  a_node_for_each_rank();
  request.seconds_left = 1000;
  request.warning_s = 300;
  request.nodes = world.size();
  const auto findings = examine();
  EXPECT_EQ(preflight::worst(findings), Result::pass) << preflight::format_table(findings);
  std::string names;
  for (const auto& f : findings) names += f.check + " ";
  EXPECT_EQ(names,
            "layout time version libraries clock directory locks space host-memory pinned-memory scratch gpus driver gpu-memory "
            "gpu-errors gpu-clocks gpu-log mpi nccl ");
  for (const auto& f : findings) {
    EXPECT_EQ(f.seen.size(), 1U) << f.check;
    EXPECT_TRUE(f.hosts.empty() && f.advice.empty()) << f.check;
  }
  world.barrier();
  if (world.is_root()) fs::remove(request.rehearsal.kernel_log);
  world.barrier();
  EXPECT_TRUE(fs::is_empty(request.run));
}

TEST_F(Preflight, the_number_of_nodes_must_be_the_jobs) {
  request.nodes = 2;
  EXPECT_EQ(verdicts(), "FAIL layout");
  EXPECT_EQ(examine().size(), 1U);  // nothing is compared between the wrong nodes
  EXPECT_TELLS(find("layout"), "but the job has 2 nodes");
}

TEST_F(Preflight, ranks_must_be_spread_evenly) {
  request.rehearsal.host = host(rank() == 0 ? 0 : 1);
  EXPECT_EQ(verdicts(), world.size() == 3 ? "FAIL layout" : "");
}

TEST_F(Preflight, another_build_on_the_last_rank) {
  a_node_for_each_rank();
  if (world.size() > 1 && last()) request.version += " other";
  EXPECT_EQ(verdicts(), world.size() == 1 ? "" : "FAIL version");
  if (world.size() == 1) return;
  const auto f = find("version");
  // Of two nodes nobody knows which one is wrong.
  EXPECT_EQ(f.hosts, world.size() == 2 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
  EXPECT_TELLS(f, last_host() + ": another program than on " + host(0) + ": aerie 1 other");
}

TEST_F(Preflight, the_odd_node_is_named_also_when_it_has_rank_0) {
  a_node_for_each_rank();
  request.libraries = {{"libnccl", "libnccl.so.2.28 (9 bytes)"}};
  if (rank() == 0) request.version += " other", request.libraries = {{"libnccl", "libnccl.so.2.27 (9 bytes)"}};
  if (world.size() == 3) {
    EXPECT_EQ(find("version").hosts, std::vector<std::string>{host(0)});
    EXPECT_EQ(find("libraries").hosts, std::vector<std::string>{host(0)});
    EXPECT_TELLS(find("version"), host(0) + ": another program than on " + host(1));
  }
}

TEST_F(Preflight, the_rank_is_named_where_its_host_has_others) {
  request.rehearsal.host = host(0);
  if (last()) request.version += " other";
  if (world.size() > 1) {
    EXPECT_TELLS(find("version"), "rank " + std::to_string(world.size() - 1) + " " + host(0) + ": another program");
  }
}

TEST_F(Preflight, another_library_or_none_on_the_last_node) {
  a_node_for_each_rank();
  request.libraries = {{"libnccl", "libnccl.so.2.28 (9 bytes)"}, {"libtorch_cpu", "libtorch_cpu.so (7 bytes)"}};
  EXPECT_TELLS(find("libraries"), "libnccl libnccl.so.2.28 (9 bytes)");
  if (world.size() == 1) return;
  if (last()) request.libraries = {{"libnccl", "libnccl.so.2.27 (9 bytes)"}, {"libmpi", "libmpi.so.40"}};
  const auto f = find("libraries");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_EQ(f.hosts, world.size() == 2 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
  EXPECT_TELLS(f, "libnccl is libnccl.so.2.27 (9 bytes), on " + host(0) + " it is libnccl.so.2.28 (9 bytes)");
  EXPECT_TELLS(f, "libtorch_cpu is not found, on " + host(0) + " it is libtorch_cpu.so (7 bytes)");
  EXPECT_TELLS(f, "libmpi is libmpi.so.40, on " + host(0) + " it is none");
}

TEST_F(Preflight, a_clock_that_is_off) {
  a_node_for_each_rank();
  EXPECT_EQ(find("clock").result, Result::pass);
  if (last()) request.rehearsal.clock_offset_s = -5;
  const auto f = find("clock");
  if (world.size() == 1) {
    EXPECT_TELLS(f, "one node: nothing to compare");
    return;
  }
  EXPECT_EQ(f.result, Result::fail) << all_of(f);
  EXPECT_TELLS(f, last_host() + ": its clock is");
  EXPECT_TELLS(f, "behind");
  // Of two nodes nobody knows which one is wrong.
  EXPECT_EQ(f.hosts, world.size() == 2 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
  request.limits.clock_s = 6;
  EXPECT_EQ(find("clock").result, Result::pass);
}

TEST_F(Preflight, a_wrong_clock_on_rank_0_is_named_and_not_the_others) {
  a_node_for_each_rank();
  if (rank() == 0) request.rehearsal.clock_offset_s = 7;
  if (world.size() == 3) {
    EXPECT_EQ(find("clock").hosts, std::vector<std::string>{host(0)});
  }
}

TEST_F(Preflight, a_directory_that_the_last_rank_does_not_see) {
  a_node_for_each_rank();
  if (last()) request.run = own.path() / "nothing/here";
  for (const auto& f : examine()) EXPECT_NE(f.check, "locks");  // would only repeat it
  const auto f = find("directory");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_EQ(f.hosts, world.size() == 1 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
}

TEST_F(Preflight, a_directory_that_is_not_shared) {
  if (last()) request.run = own.path();  // writable, but its own
  const auto f = find("directory");
  EXPECT_EQ(f.result, world.size() == 1 ? Result::pass : Result::fail);
  if (world.size() > 1) {
    EXPECT_TELLS(f, "is not seen here");
  }
}

TEST_F(Preflight, too_short_a_time) {
  request.warning_s = 300;
  request.seconds_left = 329;
  EXPECT_EQ(verdicts(), "FAIL time");
  EXPECT_TRUE(find("time").hosts.empty());
  request.seconds_left = 331;
  EXPECT_EQ(verdicts(), "");
}

TEST_F(Preflight, a_lock_that_is_given_twice) {
  if (last()) request.run = own.path();  // whose locks know nothing of the others'
  const auto f = find("locks");
  EXPECT_EQ(f.result, world.size() == 1 ? Result::pass : Result::fail);
  if (world.size() > 1) {
    EXPECT_TELLS(f, "a lock that rank 0 holds is given again");
  }
}

TEST_F(Preflight, locks_that_the_run_does_not_use_are_not_asked_for) {
  request.locks = false;
  EXPECT_TELLS(find("locks"), "none, as run.locks says");
}

TEST_F(Preflight, space_against_what_the_phase_needs) {
  struct statvfs v {};
  ASSERT_EQ(::statvfs(request.run.c_str(), &v), 0);
  const auto free = world.broadcast(static_cast<std::int64_t>(v.f_bavail) * static_cast<std::int64_t>(v.f_frsize));
  request.needs.phase = "train";
  request.needs.disk_bytes = 1000;
  request.needs.disk_what = "3 checkpoints of 333 B";
  EXPECT_TELLS(find("space"), "train still needs 1000 B (3 checkpoints of 333 B)");
  request.needs.disk_bytes = free + gib;
  auto f = find("space");
  EXPECT_EQ(f.result, Result::fail) << all_of(f);
  EXPECT_EQ(f.details.at("needed_bytes"), free + gib);
  request.needs.disk_bytes = free - gib / 2;  // others write here too, hence the wide margins
  f = find("space");
  EXPECT_EQ(f.result, Result::warn) << all_of(f);
}

TEST_F(Preflight, memory_of_the_hosts) {
  a_node_for_each_rank();
  request.needs.phase = "extract";
  request.needs.memory_bytes = 30 * gib;
  request.needs.ranks_per_node = 3;
  EXPECT_EQ(verdicts(), "");  // 90 GiB are asked for and there
  if (last()) request.rehearsal.resources->memory_available = 90 * gib - 1;
  auto f = find("host-memory");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_TELLS(f, last_host() + ": 90 GiB of memory available, but extract needs 90 GiB for 3 ranks");
  EXPECT_EQ(f.details.at("nodes").size(), static_cast<std::size_t>(world.size()));
  if (last()) request.rehearsal.resources->memory_available = 90 * gib;
  request.needs.cached_bytes = 1;
  f = find("host-memory");
  EXPECT_EQ(f.result, Result::warn);
  EXPECT_TELLS(f, "again and again");
  request.rehearsal.resources->memory_available.reset();
  EXPECT_EQ(find("host-memory").result, Result::pass);
}

TEST_F(Preflight, pinned_memory_matters_where_gpus_are) {
  if (last()) request.rehearsal.resources->pinned_limit = 8 << 20;
  EXPECT_EQ(verdicts(), "");
  const test::FakeGpus fake(test::sound_gpus(1));
  EXPECT_EQ(verdicts(), "WARN pinned-memory");
  EXPECT_TELLS(find("pinned-memory"), "only 8.0 MiB may be pinned");
}

TEST_F(Preflight, full_scratch_directories) {
  const auto with = [&](std::int64_t tmp, std::int64_t shm) {
    request.rehearsal.resources->tmp_free = last() ? tmp : 10 * gib;
    request.rehearsal.resources->shm_free = last() ? shm : 10 * gib;
    return find("scratch");
  };
  EXPECT_EQ(with(gib, gib).result, Result::pass);
  EXPECT_EQ(with(gib - 1, gib).result, Result::warn);
  EXPECT_EQ(with(1 << 20, gib).result, Result::fail);
  EXPECT_EQ(with(gib, 64 << 20).result, Result::warn);
  const auto f = with(gib, 1 << 20);
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_TELLS(f, "1.0 MiB free in /dev/shm");
}

TEST_F(Preflight, table_and_json_say_the_same) {
  request.nodes = 7;
  const auto findings = examine();
  const auto json = preflight::to_json(findings);
  EXPECT_EQ(json.at("version"), 2);
  EXPECT_EQ(json.at("checks").at(0).at("check"), "layout");
  EXPECT_EQ(json.at("checks").at(0).at("result"), "FAIL");
  const auto table = preflight::format_table(findings);
  EXPECT_NE(table.find("layout         FAIL"), std::string::npos) << table;
  EXPECT_NE(table.find("-> start it with the launcher"), std::string::npos) << table;
}

TEST_F(Preflight, a_long_list_is_cut_in_the_table_only) {
  preflight::Finding f;
  f.check = "gpu-memory", f.result = Result::warn;
  for (int i = 0; i < 20; ++i) f.seen.push_back("line " + std::to_string(i));
  const auto table = preflight::format_table({f});
  EXPECT_NE(table.find("line 11\n"), std::string::npos);
  EXPECT_EQ(table.find("line 12\n"), std::string::npos);
  EXPECT_NE(table.find("and 8 more"), std::string::npos);
  EXPECT_EQ(preflight::to_json({f}).at("checks").at(0).at("seen").size(), 20U);
}

TEST_F(Preflight, a_stop_between_checks_ends_it) {
  int calls = 0;
  EXPECT_THROW(preflight::examine(world, request,
                                  [&](std::string_view) {
                                    if (++calls == 2) throw base::StopRequested("as asked");
                                  }),
               base::StopRequested);
}
}  // namespace
