// SPDX-License-Identifier: Apache-2.0
// Xid errors as the kernel log tells them, and what preflight makes of them.
#include "kernel_log.hpp"

#include <ctime>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nodes.hpp"

namespace {
using namespace aerie;
using preflight::Result;
using preflight::Seriousness;
using test::FakeGpus;
using test::Preflight;

struct KernelLog : Preflight {
  KernelLog() {
    a_node_for_each_rank();
    kernel_log("", 0);
  }
  /// The log is one line about NVIDIA's driver, `age_s` old, after other lines.
  void kernel_log(const std::string& message, double age_s) const {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    const auto stamp = static_cast<std::int64_t>((static_cast<double>(t.tv_sec) - age_s) * 1e6);
    std::ofstream(request.rehearsal.kernel_log) << "6,1,1000,-;Linux version 6.1\n"
                                                << "5,2,2000,-;usb 1-1: new device\n SUBSYSTEM=usb\n"
                                                << fmt::format("4,3,{},-;{}\n", stamp, message);
  }
  std::string xid(int number, const std::string& pci = "PCI:0000:18:00") const {
    return fmt::format("NVRM: Xid ({}): {}, pid='<unknown>', name=<unknown>, what it says", pci, number);
  }
  Result verdict(int number, double age_s = 60) {
    kernel_log(last() ? xid(number) : "quiet", age_s);
    return find("gpu-log").result;
  }
  FakeGpus fake{test::sound_gpus(2)};  // 0000:18:00 and 0000:19:00
};

TEST_F(KernelLog, lines_are_read) {
  kernel_log(xid(79), 100);
  const auto log = preflight::read_xids(request.rehearsal.kernel_log);
  EXPECT_TRUE(log.readable);
  ASSERT_EQ(log.xids.size(), 1U);
  EXPECT_EQ(log.xids[0].pci_bus_id, "0000:18:00");
  EXPECT_EQ(log.xids[0].number, 79);
  EXPECT_NEAR(log.xids[0].age_s, 100, 5);
  EXPECT_EQ(log.xids[0].text, "pid='<unknown>', name=<unknown>, what it says");
}

TEST_F(KernelLog, forms_of_other_drivers) {
  kernel_log("NVRM: Xid (PCI:0000:af:00 GPU-I:05): 31, Ch 00000008", 5);
  EXPECT_EQ(preflight::read_xids(request.rehearsal.kernel_log).xids.at(0).pci_bus_id, "0000:af:00");
  kernel_log("NVRM: Xid (PCI:0000:af:00): 43", 5);
  EXPECT_EQ(preflight::read_xids(request.rehearsal.kernel_log).xids.at(0).number, 43);
  kernel_log("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", 5);
  EXPECT_TRUE(preflight::read_xids(request.rehearsal.kernel_log).xids.empty());
}

TEST_F(KernelLog, a_pipe_without_a_writer_does_not_block) {
  const auto pipe = own / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int writer = ::open(pipe.c_str(), O_RDWR);  // open, and silent: like /dev/kmsg at its end
  EXPECT_TRUE(preflight::read_xids(pipe).readable);
  ::close(writer);
}

TEST_F(KernelLog, that_cannot_be_read_is_said_and_no_fault) {
  request.rehearsal.kernel_log = own / "none";
  const auto f = find("gpu-log");
  EXPECT_EQ(f.result, Result::pass);
  EXPECT_TELLS(f, "the kernel log cannot be read here: No such file or directory");
}

TEST_F(KernelLog, verdicts_by_number) {
  for (const int n : {48, 64, 79, 95, 119, 120, 140}) EXPECT_EQ(verdict(n), Result::fail) << n;
  for (const int n : {74, 94, 32, 109}) EXPECT_EQ(verdict(n), Result::warn) << n;
  for (const int n : {13, 31, 43, 45, 63}) EXPECT_EQ(verdict(n), Result::pass) << n;
  EXPECT_EQ(preflight::seriousness(79), Seriousness::reset);
}

TEST_F(KernelLog, an_old_one_is_a_warning) {
  request.limits.log_hours = 0.5;
  EXPECT_EQ(verdict(79, 1700), Result::fail);
  EXPECT_EQ(verdict(79, 1900), Result::warn);
}

TEST_F(KernelLog, the_node_is_named_and_the_gpu) {
  verdict(79);
  const auto f = find("gpu-log");
  EXPECT_TELLS(f, last_host() + ": GPU 0000:18:00: Xid 79, ");
  EXPECT_EQ(f.hosts, world.size() == 1 ? std::vector<std::string>{} : std::vector<std::string>{last_host()});
  const auto& list = f.details.at("nodes").at(static_cast<std::size_t>(world.size() - 1)).at("xids");
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].at("xid"), 79);
  EXPECT_EQ(list[0].at("pci"), "0000:18:00");
}

TEST_F(KernelLog, a_thousand_of_one_kind_are_one_line) {
  for (int i = 0; i < 1000; ++i)
    std::ofstream(request.rehearsal.kernel_log, std::ios::app) << fmt::format("4,{},1,-;{}\n", i + 9, xid(94));
  const auto f = find("gpu-log");
  EXPECT_EQ(f.seen.size(), 1U);
  EXPECT_TELLS(f, "Xid 94 (1000 times)");
}

TEST_F(KernelLog, gpus_of_another_job_are_not_looked_at_but_those_that_vanished_are) {
  kernel_log(xid(79, "PCI:0000:19:00"), 5);
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(find("gpu-log").result, Result::pass);
  kernel_log(xid(79, "PCI:0000:55:00"), 5);  // the driver does not show it any more
  EXPECT_EQ(find("gpu-log").result, Result::fail);
}
}  // namespace
