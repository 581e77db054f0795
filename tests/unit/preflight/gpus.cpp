// SPDX-License-Identifier: Apache-2.0
// Every verdict about GPUs, through a fake NVML. The last rank's node has the trouble; it alone is named.
#include <unistd.h>

#include "nodes.hpp"
#include "sleeper.hpp"

namespace {
using namespace aerie;
using nlohmann::json;
using preflight::Result;
using test::FakeGpus;
using test::gib;
using test::Preflight;
using test::sound_gpus;

struct Gpus : Preflight {
  Gpus() {
    a_node_for_each_rank();
    request.only = {"gpus", "driver", "gpu-memory", "gpu-errors", "gpu-clocks", "gpu-log"};
  }

  /// Two sound GPUs on each node; on the last node the second one is as `trouble` says.
  json machine(const json& trouble) const {
    auto out = sound_gpus(2);
    if (last()) out["gpus"][1].update(trouble);
    return out;
  }
  std::vector<std::string> the_last() const {
    return world.size() == 1 ? std::vector<std::string>{} : std::vector<std::string>{last_host()};
  }
  /// `check` gives `result` for the last node alone, with `text`; every other check passes.
  void expect_alone(const json& trouble, Result result, const std::string& check, const std::string& text) {
    fake.now(machine(trouble));
    const auto verdict = std::string(preflight::result_name(result)) + " " + check;
    EXPECT_EQ(verdicts(), verdict) << trouble;
    const auto f = find(check);
    EXPECT_EQ(f.hosts, the_last()) << all_of(f);
    EXPECT_TELLS(f, last_host() + ": GPU 1 (0000:19:00)" + text);
    EXPECT_FALSE(f.advice.empty());
  }
  void expect_none(const json& harmless) {
    fake.now(machine(harmless));
    EXPECT_EQ(verdicts(), "") << harmless;
  }
  FakeGpus fake{sound_gpus(2)};
};

TEST_F(Gpus, sound_ones_pass) {
  request.gpus = 2;
  EXPECT_EQ(verdicts(), "");
  const auto f = find("gpus");
  EXPECT_TELLS(f, "2 x NVIDIA H200 140 GiB on each node");
  EXPECT_EQ(f.details.at("nodes").size(), static_cast<std::size_t>(world.size()));
  EXPECT_EQ(f.details.at("nodes").at(0).at("gpus").at(1).at("pci"), "0000:19:00");
  EXPECT_TELLS(find("driver"), "580.95.05");
}

TEST_F(Gpus, none_and_none_asked_for) {
  fake.now({{"init", 9}});
  EXPECT_EQ(verdicts(), "");
  EXPECT_TELLS(find("gpus"), "none, and no driver");
  EXPECT_TELLS(find("gpu-memory"), "no GPUs");
}

TEST_F(Gpus, none_but_asked_for) {
  request.gpus = 2;
  if (last()) fake.now({{"init", 9}});
  const auto f = find("gpus");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_EQ(f.hosts, the_last());
  EXPECT_TELLS(f, last_host() + ": no GPUs: nvmlInit: Driver Not Loaded");
}

TEST_F(Gpus, slurm_says_that_there_are_some) {
  fake.now({{"init", 9}});
  ::setenv("SLURM_JOB_GPUS", "0,1", 1);
  EXPECT_EQ(verdicts(), "WARN gpus");
  EXPECT_TELLS(find("gpus"), "SLURM_JOB_GPUS=0,1, but there is no driver to ask");
}

TEST_F(Gpus, too_few) {
  request.gpus = 2;
  if (last()) fake.now(sound_gpus(1));
  EXPECT_EQ(verdicts(), "FAIL gpus");
  EXPECT_TELLS(find("gpus"), last_host() + ": 1 GPUs, but 2 were asked for");
  EXPECT_EQ(find("gpus").hosts, the_last());
}

TEST_F(Gpus, another_number_than_the_first_node_has) {
  if (last()) fake.now(sound_gpus(1));
  EXPECT_EQ(verdicts(), world.size() == 1 ? "" : "FAIL gpus");
  if (world.size() > 1) {
    EXPECT_TELLS(find("gpus"), last_host() + ": 1 GPUs, node0 has 2");
  }
}

TEST_F(Gpus, ranks_of_one_node_with_a_gpu_each_make_up_the_node) {
  request.rehearsal.host = host(0);
  request.gpus = world.size();
  fake.now(sound_gpus(world.size()));
  ::setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank()).c_str(), 1);
  EXPECT_EQ(verdicts(), "");
  EXPECT_EQ(find("gpus").details.at("nodes").at(0).at("gpus").size(), static_cast<std::size_t>(world.size()));
}

TEST_F(Gpus, ranks_that_each_see_their_own_gpu_only_make_up_the_node) {
  request.rehearsal.host = host(0);
  request.gpus = world.size();
  fake.now({{"gpus", {{{"uuid", "GPU-of-rank-" + std::to_string(rank())}}}}});  // number 0 for all
  EXPECT_EQ(verdicts(), "");
  EXPECT_EQ(find("gpus").details.at("nodes").at(0).at("gpus").size(), static_cast<std::size_t>(world.size()));
}

TEST_F(Gpus, only_those_of_the_job_are_judged) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const test::Sleeper neighbour;
  expect_none({{"processes", {{{"pid", neighbour.pid()}, {"bytes", gib}}}}});
  expect_none({{"lost", true}, {"throttle", 64}, {"ecc_uncorrected", 3}, {"memory_used", 100 * gib}});
  ::setenv("CUDA_VISIBLE_DEVICES", "0,5", 1);
  fake.now(sound_gpus(2));
  EXPECT_EQ(verdicts(), "FAIL gpus");
  EXPECT_TELLS(find("gpus"), "CUDA_VISIBLE_DEVICES names 5, which is not there");
}

TEST_F(Gpus, of_another_kind) {
  const auto unlike = [&](const json& how, const std::string& text) {
    fake.now(machine(how));
    EXPECT_EQ(verdicts(), "FAIL gpus") << how;
    EXPECT_TELLS(find("gpus"), last_host() + ": GPU 1 (0000:19:00) is a " + text + ", others are NVIDIA H200 140 GiB");
  };
  unlike({{"name", "NVIDIA A100"}}, "NVIDIA A100 140 GiB");
  unlike({{"memory_total", 80 * gib}}, "NVIDIA H200 80 GiB");
}

TEST_F(Gpus, lost) {
  fake.now(machine({{"lost", true}}));
  EXPECT_EQ(verdicts(), "FAIL gpus");
  const auto f = find("gpus");
  EXPECT_EQ(f.hosts, the_last());
  EXPECT_EQ(f.seen.size(), 1U) << all_of(f);  // it has no name, and is no GPU of another kind
  EXPECT_TELLS(f, last_host() + ": GPU 1 is lost: GPU is lost");
}

TEST_F(Gpus, one_that_wants_a_reset) {
  expect_alone({{"errors", {{"nvmlDeviceGetTemperature", 16}}}}, Result::fail, "gpus", " is lost: GPU requires reset");
}

TEST_F(Gpus, one_that_does_not_answer) {
  expect_alone({{"errors", {{"nvmlDeviceGetClockInfo", 999}}}}, Result::warn, "gpus",
               " does not answer nvmlDeviceGetClockInfo: Unknown Error");
  expect_none({{"errors", {{"nvmlDeviceGetClockInfo", 3}}}});
}

TEST_F(Gpus, another_driver) {
  auto other = sound_gpus(2);
  other["driver"] = "570.1";
  if (last()) fake.now(other);
  EXPECT_EQ(verdicts(), world.size() == 1 ? "" : "FAIL driver");
  if (world.size() > 1) {
    EXPECT_TELLS(find("driver"), last_host() + ": driver 570.1, node0 has 580.95.05");
  }
}

TEST_F(Gpus, memory_errors) {
  expect_alone({{"ecc_uncorrected", 2}}, Result::fail, "gpu-errors", " had 2 memory errors that could not be corrected");
  expect_alone({{"remap", {{"failed", true}}}}, Result::fail, "gpu-errors", " has no spare row left");
  expect_alone({{"remap", {{"pending", true}}}}, Result::warn, "gpu-errors", " waits for a reset to replace a memory row");
  expect_alone({{"ecc", false}}, Result::warn, "gpu-errors", " works with ECC switched off");
  expect_none({{"ecc_corrected", 1000}, {"ecc_uncorrected_ever", 5}, {"remap", {{"corrected", 9}, {"uncorrected", 3}}}});
  fake.now(machine({{"ecc_corrected", 4}, {"remap", {{"corrected", 9}}}}));
  const auto told = find("gpu-errors").details.at("nodes").at(static_cast<std::size_t>(world.size() - 1)).at("gpus").at(1);
  EXPECT_EQ(told.at("corrected"), 4);
  EXPECT_EQ(told.at("remap").at("corrected"), 9);
}

TEST_F(Gpus, the_worst_comes_first_and_its_nodes_alone_are_at_fault) {
  auto machine = sound_gpus(2);
  machine["gpus"][0]["ecc"] = false;  // a warning of every node, and found first
  if (last()) machine["gpus"][1]["ecc_uncorrected"] = 1;
  fake.now(machine);
  const auto f = find("gpu-errors");
  EXPECT_EQ(f.result, Result::fail);
  ASSERT_EQ(f.seen.size(), 2U) << all_of(f);
  EXPECT_NE(f.seen[0].find("could not be corrected"), std::string::npos) << f.seen[0];
  EXPECT_NE(f.advice.find("reset the GPU"), std::string::npos) << f.advice;
  EXPECT_EQ(f.hosts, the_last());
}

TEST_F(Gpus, memory_errors_of_an_old_gpu) {
  const FakeGpus old(machine({{"retirement_pending", true}}), FAKE_NVML_OLD);
  EXPECT_EQ(verdicts(), "WARN gpu-errors");
  EXPECT_TELLS(find("gpu-errors"), "GPU 1 (0000:19:00) waits for a reset to retire a memory page");
}

TEST_F(Gpus, held_down_or_hot) {
  expect_alone({{"throttle", 0x8}}, Result::warn, "gpu-clocks", ": slowdown by the hardware");
  expect_alone({{"throttle", 0x48}}, Result::warn, "gpu-clocks", ": thermal slowdown by the hardware");
  expect_alone({{"throttle", 0x80}}, Result::warn, "gpu-clocks", ": power brake by the node's power supply");
  expect_alone({{"temperature", 87}, {"slowdown", 92}}, Result::warn, "gpu-clocks", " has 87 C, and slows down at 92 C");
  expect_none({{"temperature", 86}, {"slowdown", 92}, {"throttle", 0x5}, {"clock", 210}});
}

TEST_F(Gpus, somebody_computes_there) {
  const test::Sleeper holder;
  fake.now(machine({{"processes", {{{"pid", holder.pid()}, {"bytes", 120 * gib}}}}}));
  EXPECT_EQ(verdicts(), "FAIL gpu-memory");
  const auto f = find("gpu-memory");
  EXPECT_EQ(f.hosts, the_last());
  if (last()) {
    EXPECT_TELLS(f, "pid " + std::to_string(holder.pid()) + " ");
    EXPECT_NE(f.advice.find(std::to_string(holder.pid())), std::string::npos) << f.advice;
  }
  EXPECT_TELLS(f, "holds 120 GiB of GPU 1 (0000:19:00); to stop it: ");
  EXPECT_TELLS(f, ::geteuid() == 0 ? "(user root" : "(user ");
  const auto list = f.details.at("nodes").at(static_cast<std::size_t>(world.size() - 1)).at("processes");
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].at("bytes"), 120 * gib);
  EXPECT_EQ(list[0].at("gpu"), 1);
  EXPECT_EQ(list[0].at("of_this_run"), false);
  // However little it holds; and gone with it.
  fake.now(machine({{"processes", {{{"pid", holder.pid()}, {"bytes", 1}}}}}));
  EXPECT_EQ(verdicts(), "FAIL gpu-memory");
  holder.end();
  EXPECT_EQ(verdicts(), "");
}

TEST_F(Gpus, a_display_is_let_in_while_it_holds_little) {
  const test::Sleeper display;
  const auto holds = [&](std::int64_t bytes) {
    fake.now(machine({{"processes", {{{"pid", display.pid()}, {"bytes", bytes}, {"kind", "graphics"}}}}}));
    return verdicts();
  };
  EXPECT_EQ(holds(4 << 20), "WARN gpu-memory");
  EXPECT_EQ(holds(gib), "FAIL gpu-memory");
  EXPECT_EQ(holds(-1), "FAIL gpu-memory");  // nobody knows how much
}

TEST_F(Gpus, a_process_of_another_container) {
  fake.now(machine({{"processes", {{{"pid", 99999999}, {"bytes", gib}, {"ghost", true}}}}}));
  const auto f = find("gpu-memory");
  EXPECT_EQ(f.result, Result::fail);
  EXPECT_TELLS(f, last_host() + ": pid 99999999 holds 1.0 GiB of GPU 1 (0000:19:00); /proc does not show it");
}

TEST_F(Gpus, memory_that_nobody_holds) {
  expect_none({{"memory_used", gib}});
  fake.now(machine({{"memory_used", gib + 1}}));
  EXPECT_EQ(verdicts(), "FAIL gpu-memory");
  EXPECT_TELLS(find("gpu-memory"), last_host() + ": 1.0 GiB of GPU 1 (0000:19:00) are in use, and no process");
  // Of a process whose share is not told nobody can say what it explains.
  const test::Sleeper holder;
  fake.now(machine({{"memory_used", 9 * gib}, {"processes", {{{"pid", holder.pid()}, {"bytes", -1}}}}}));
  const auto f = find("gpu-memory");
  EXPECT_EQ(f.seen.size(), 1U) << all_of(f);
  EXPECT_TELLS(f, "holds memory of GPU 1");
}

TEST_F(Gpus, this_programs_own_ranks_are_no_strangers) {
  expect_none({{"processes", {{{"pid", ::getpid()}, {"bytes", 2 * gib}}}}});
}

TEST_F(Gpus, after_a_phase_memory_is_free_at_once) {
  const auto f = preflight::examine_after(world, request, 0, [] {});
  EXPECT_EQ(f.result, Result::pass) << all_of(f);
  EXPECT_EQ(f.check, "gpu-memory");
  ASSERT_EQ(f.details.at("nodes").size(), static_cast<std::size_t>(world.size()));
  EXPECT_EQ(f.details.at("nodes").at(0).at("gpus").size(), 2U);
  EXPECT_EQ(f.details.at("nodes").at(0).at("gpus").at(0).at("used_bytes"), 0);
}

TEST_F(Gpus, after_a_phase_the_driver_is_given_time) {
  const test::Sleeper ending;
  fake.now(machine({{"processes", {{{"pid", ending.pid()}, {"bytes", 7 * gib}}}}}));
  int polls = 0;
  const auto f = preflight::examine_after(world, request, 30, [&] {
    if (++polls == 2) ending.end();
  });
  EXPECT_EQ(f.result, Result::pass) << all_of(f);
  EXPECT_GE(polls, 2);
  EXPECT_LT(f.details.at("waited_s"), 10);
}

TEST_F(Gpus, after_a_phase_what_stays_is_told) {
  const test::Sleeper left;
  fake.now(machine({{"processes", {{{"pid", left.pid()}, {"bytes", 7 * gib}}}}}));
  const auto f = preflight::examine_after(world, request, 0.3, [] {});
  EXPECT_EQ(f.result, Result::warn);
  EXPECT_EQ(f.hosts, the_last());
  EXPECT_TELLS(f, "holds 7.0 GiB of GPU 1");
  const auto& node = f.details.at("nodes").at(static_cast<std::size_t>(world.size() - 1));
  EXPECT_EQ(node.at("gpus").at(1).at("used_bytes"), 7 * gib);
  ASSERT_EQ(node.at("processes").size(), 1U);
  fake.now(machine({{"memory_used", 5 * gib}}));
  EXPECT_TELLS(preflight::examine_after(world, request, 0, [] {}), "5.0 GiB of GPU 1 (0000:19:00) are still in use");
}

TEST_F(Gpus, after_a_phase_without_gpus_there_is_nothing_to_record) {
  fake.now({{"init", 9}});
  const auto f = preflight::examine_after(world, request, 0, [] {});
  EXPECT_EQ(f.result, Result::pass);
  EXPECT_TRUE(f.details.at("nodes").empty());
}
}  // namespace
