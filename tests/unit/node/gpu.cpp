// SPDX-License-Identifier: Apache-2.0
// What NVML tells reaches the caller, whichever of its functions exist and whatever it refuses.
#include <aerie/node/gpu.hpp>

#include <gtest/gtest.h>

#include "fake_gpus.hpp"
#include "sleeper.hpp"

namespace {
using namespace aerie;
using nlohmann::json;
using test::FakeGpus;
using test::sound_gpus;

TEST(Gpu, without_a_library_there_are_no_gpus_and_the_reason_is_told) {
  const FakeGpus fake(sound_gpus(1), "/nowhere/libnvidia-ml.so.1");
  const auto view = node::look_at_gpus();
  EXPECT_FALSE(view.nvml);
  EXPECT_TRUE(view.gpus.empty());
  EXPECT_NE(view.why_not.find("/nowhere/libnvidia-ml.so.1"), std::string::npos) << view.why_not;
}

TEST(Gpu, a_library_that_is_not_nvml) {
  const FakeGpus fake(sound_gpus(1), "libm.so.6");
  EXPECT_NE(node::look_at_gpus().why_not.find("is not NVML"), std::string::npos);
}

TEST(Gpu, a_library_without_a_driver) {
  const FakeGpus fake(json{{"init", 9}});
  const auto view = node::look_at_gpus();
  EXPECT_FALSE(view.nvml);
  EXPECT_EQ(view.why_not, "nvmlInit: Driver Not Loaded");
}

TEST(Gpu, a_driver_that_cannot_count) {
  const FakeGpus fake(json{{"errors", {{"nvmlDeviceGetCount", 999}}}});
  EXPECT_EQ(node::look_at_gpus().why_not, "nvmlDeviceGetCount: Unknown Error");
}

TEST(Gpu, everything_that_is_told_arrives) {
  const json remap{{"corrected", 3}, {"uncorrected", 2}, {"pending", true}, {"failed", true}};
  const FakeGpus fake(json{{"driver", "600.1"},
                           {"nvml", "14.600.1"},
                           {"gpus",
                            {{{"name", "NVIDIA B200"},
                              {"uuid", "GPU-abc"},
                              {"pci", "00000001:AF:00.0"},
                              {"memory_total", 1000},
                              {"memory_used", 700},
                              {"reserved", 100},
                              {"ecc_corrected", 11},
                              {"ecc_uncorrected", 12},
                              {"ecc_uncorrected_ever", 13},
                              {"remap", remap},
                              {"temperature", 71},
                              {"slowdown", 88},
                              {"clock", 1200},
                              {"max_clock", 2100},
                              {"throttle", 0x48}}}}});
  const auto view = node::look_at_gpus();
  EXPECT_TRUE(view.nvml);
  EXPECT_EQ(view.driver, "600.1");
  EXPECT_EQ(view.nvml_version, "14.600.1");
  ASSERT_EQ(view.gpus.size(), 1U);
  const auto& g = view.gpus[0];
  EXPECT_EQ(g.name, "NVIDIA B200");
  EXPECT_EQ(g.uuid, "GPU-abc");
  EXPECT_EQ(g.pci_bus_id, "0001:af:00");
  EXPECT_EQ(g.memory_total, 1000);
  EXPECT_EQ(g.memory_used, 700);  // not what the driver keeps
  EXPECT_TRUE(g.processes_known);
  EXPECT_EQ(g.ecc, true);
  EXPECT_EQ(g.ecc_corrected, 11);
  EXPECT_EQ(g.ecc_uncorrected, 12);
  EXPECT_EQ(g.ecc_uncorrected_ever, 13);
  ASSERT_TRUE(g.remap);
  EXPECT_EQ(g.remap->corrected, 3);
  EXPECT_EQ(g.remap->uncorrected, 2);
  EXPECT_TRUE(g.remap->pending && g.remap->failed);
  EXPECT_FALSE(g.retirement_pending);  // not asked of a GPU that remaps
  EXPECT_EQ(g.temperature_c, 71);
  EXPECT_EQ(g.slowdown_c, 88);
  EXPECT_EQ(g.sm_clock_mhz, 1200);
  EXPECT_EQ(g.sm_clock_max_mhz, 2100);
  EXPECT_EQ(g.throttle, 0x48U);
  EXPECT_TRUE(g.faults.empty());
  EXPECT_FALSE(g.lost);
}

TEST(Gpu, pending_and_failed_remaps_are_told_apart) {
  const FakeGpus fake(sound_gpus(0));
  for (const bool pending : {false, true}) {
    fake.now({{"gpus", {{{"remap", {{"pending", pending}, {"failed", !pending}}}}}}});
    const auto remap = node::look_at_gpus().gpus.at(0).remap;
    ASSERT_TRUE(remap);
    EXPECT_EQ(remap->pending, pending);
    EXPECT_EQ(remap->failed, !pending);
  }
}

TEST(Gpu, the_functions_of_an_old_driver_will_do) {
  const test::Sleeper holder, display;
  const FakeGpus fake(json{{"gpus",
                            {{{"memory_total", 1000},
                              {"memory_used", 5},
                              {"reserved", 100},
                              {"retirement_pending", true},
                              {"throttle", 8},
                              {"processes",
                               {{{"pid", holder.pid()}, {"bytes", 70}},
                                {{"pid", display.pid()}, {"bytes", 30}, {"kind", "graphics"}},
                                {{"pid", 1}, {"bytes", 9}, {"kind", "mps"}}}}}}}},
                      FAKE_NVML_OLD);
  const auto g = node::look_at_gpus().gpus.at(0);
  EXPECT_EQ(g.memory_used, 5 + 100 + 70 + 30 + 9);  // with what the driver keeps: the old query does not tell it apart
  EXPECT_FALSE(g.remap);
  EXPECT_EQ(g.retirement_pending, true);
  EXPECT_EQ(g.throttle, 8U);
  EXPECT_TRUE(g.processes_known);
  ASSERT_EQ(g.processes.size(), 2U);  // it has no list of MPS clients
  for (const auto& p : g.processes) {
    EXPECT_EQ(p.bytes, p.pid == holder.pid() ? 70 : 30);
    EXPECT_EQ(p.graphics, p.pid == display.pid());
  }
  EXPECT_TRUE(g.faults.empty());
}

TEST(Gpu, who_holds_memory_and_what_becomes_of_it) {
  const test::Sleeper one, two;
  const FakeGpus fake(json{{"gpus",
                            {{{"memory_used", 3},
                              {"processes",
                               {{{"pid", one.pid()}, {"bytes", 50}},
                                {{"pid", one.pid()}, {"bytes", 60}, {"kind", "graphics"}},  // computes and draws
                                {{"pid", two.pid()}, {"bytes", -1}, {"kind", "mps"}},
                                {{"pid", 99999999}, {"bytes", 7}, {"ghost", true}}}}}}}});
  auto g = node::look_at_gpus().gpus.at(0);
  ASSERT_EQ(g.processes.size(), 3U);
  for (const auto& p : g.processes) {
    EXPECT_FALSE(p.graphics) << p.pid;
    EXPECT_EQ(p.bytes, p.pid == one.pid() ? 60 : p.pid == two.pid() ? -1 : 7);
  }
  EXPECT_EQ(g.memory_used, 3 + 50 + 60 + 7);
  one.end();  // a zombie holds nothing
  g = node::look_at_gpus().gpus.at(0);
  EXPECT_EQ(g.processes.size(), 2U);
  EXPECT_EQ(g.memory_used, 3 + 7);
}

TEST(Gpu, more_processes_than_the_first_guess) {
  json list = json::array();
  for (int i = 0; i < 100; ++i) list.push_back({{"pid", 50000000 + i}, {"bytes", i}, {"ghost", true}});
  const FakeGpus fake(json{{"gpus", {{{"processes", list}}}}});
  const auto g = node::look_at_gpus().gpus.at(0);
  ASSERT_EQ(g.processes.size(), 100U);
  EXPECT_EQ(g.processes.back().pid, 50000099);
  EXPECT_EQ(g.processes.back().bytes, 99);
}

TEST(Gpu, what_is_not_supported_is_empty_and_no_fault) {
  json errors;
  for (const char* f : {"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo",
                        "nvmlDeviceGetEccMode", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
                        "nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows",
                        "nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureThreshold",
                        "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetCurrentClocksThrottleReasons"})
    errors[f] = 3;
  const FakeGpus fake(json{{"gpus", {{{"errors", errors}}}}});
  const auto g = node::look_at_gpus().gpus.at(0);
  EXPECT_TRUE(g.faults.empty());
  EXPECT_TRUE(g.name.empty() && g.uuid.empty() && g.pci_bus_id.empty() && g.processes.empty());
  EXPECT_FALSE(g.processes_known);
  EXPECT_FALSE(g.memory_total || g.memory_used || g.ecc || g.ecc_corrected || g.ecc_uncorrected || g.ecc_uncorrected_ever);
  EXPECT_FALSE(g.remap || g.retirement_pending || g.temperature_c || g.slowdown_c || g.sm_clock_mhz || g.sm_clock_max_mhz);
  EXPECT_FALSE(g.throttle);
  // Each refusal for another reason is told by the function's name, and the rest still arrives.
  for (const auto& [function, code] : errors.items()) {
    fake.now({{"gpus", {{{"uuid", "GPU-x"}, {"retirement_pending", true}, {"errors", {{function, 999}}}}}}});
    const auto one = node::look_at_gpus().gpus.at(0);
    if (function == "nvmlDeviceGetRetiredPagesPendingStatus") continue;  // not asked of this GPU
    ASSERT_FALSE(one.faults.empty()) << function;
    EXPECT_EQ(one.faults[0].query.compare(0, function.size(), function), 0) << one.faults[0].query << " for " << function;
    EXPECT_EQ(one.faults[0].code, 999);
    EXPECT_EQ(one.faults[0].text, "Unknown Error");
    EXPECT_FALSE(one.lost);
  }
}

TEST(Gpu, a_lost_one_stays_in_the_list) {
  auto machine = sound_gpus(3);
  machine["gpus"][1]["lost"] = true;
  machine["gpus"][2]["errors"] = {{"nvmlDeviceGetTemperature", 16}};
  const FakeGpus fake(machine);
  const auto view = node::look_at_gpus();
  ASSERT_EQ(view.gpus.size(), 3U);
  EXPECT_FALSE(view.gpus[0].lost);
  EXPECT_TRUE(view.gpus[1].lost);
  ASSERT_EQ(view.gpus[1].faults.size(), 1U);
  EXPECT_EQ(view.gpus[1].faults[0].text, "GPU is lost");
  EXPECT_TRUE(view.gpus[2].lost);  // until it is reset
}

TEST(Gpu, a_handle_that_is_refused_is_a_fault_whatever_the_reason) {
  const FakeGpus fake(json{{"gpus", {{{"errors", {{"nvmlDeviceGetHandleByIndex", 3}}}}}}});
  EXPECT_EQ(node::look_at_gpus().gpus.at(0).faults.at(0).query, "nvmlDeviceGetHandleByIndex");
}

/// Indices of the visible GPUs of four, and the note.
std::string visible(const char* value) {
  if (value)
    ::setenv("CUDA_VISIBLE_DEVICES", value, 1);
  else
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  const auto view = node::look_at_gpus();
  EXPECT_EQ(view.gpus.size(), 4U);
  std::string out;
  for (const auto& g : view.visible()) out += std::to_string(g.index);
  return out + (view.note.empty() ? "" : " ?" + view.note);
}

TEST(Gpu, cuda_visible_devices) {
  const FakeGpus fake(sound_gpus(4));
  EXPECT_EQ(visible(nullptr), "0123");
  EXPECT_EQ(visible(""), "");
  EXPECT_EQ(visible("-1"), "");
  EXPECT_EQ(visible("NoDevFiles"), "");
  EXPECT_EQ(visible("2"), "2");
  EXPECT_EQ(visible("3, 0"), "03");
  EXPECT_EQ(visible("1,-1,2"), "1");  // as CUDA has it: what follows an entry that names none is left out
  EXPECT_EQ(visible("1,7,2"), "1 ?7");
  EXPECT_EQ(visible("GPU-0000-2"), "2");
  EXPECT_EQ(visible("MIG-0000"), " ?MIG-0000");
}

TEST(Gpu, pci_ids_of_nvml_and_of_the_kernel_become_one) {
  EXPECT_EQ(node::plain_pci_id("00000000:18:00.0"), "0000:18:00");
  EXPECT_EQ(node::plain_pci_id("PCI:0000:18:00"), "0000:18:00");
  EXPECT_EQ(node::plain_pci_id("0001:AF:1F"), "0001:af:1f");
  EXPECT_EQ(node::plain_pci_id("nothing"), "nothing");
}

TEST(Gpu, throttle_reasons_that_mean_trouble) {
  using node::throttle_reasons;
  EXPECT_TRUE(throttle_reasons(0x1 | 0x2 | 0x4 | 0x10 | 0x100).empty());  // idle, application clocks, power cap, sync, display
  EXPECT_EQ(throttle_reasons(0x8).at(0), "slowdown by the hardware");
  EXPECT_EQ(throttle_reasons(0x8 | 0x40), std::vector<std::string>{"thermal slowdown by the hardware"});
  EXPECT_EQ(throttle_reasons(0x20), std::vector<std::string>{"thermal slowdown by the driver"});
  EXPECT_EQ(throttle_reasons(0x80).at(0), "power brake by the node's power supply");
  EXPECT_EQ(throttle_reasons(0x40 | 0x20 | 0x80).size(), 3U);
}

}  // namespace
