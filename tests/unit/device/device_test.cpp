// SPDX-License-Identifier: Apache-2.0
// Device choice and LibTorch's settings, as far as a machine without a GPU can tell.
#include <aerie/device/device.hpp>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <aerie/base/error.hpp>

namespace aerie::device {
namespace {

bool has_gpu() { return at::hasCUDA(); }

TEST(Device, CpuIsCpuEverywhere) {
  EXPECT_TRUE(choose_device("cpu", comm::Comm::solo()).is_cpu());
  EXPECT_EQ(describe(c10::Device(c10::kCPU)), "cpu");
  EXPECT_EQ(peak_memory_bytes(c10::Device(c10::kCPU)), 0);
}

TEST(Device, AutoFallsBackToTheCpu) {
  if (has_gpu()) GTEST_SKIP() << "a GPU is visible";
  EXPECT_TRUE(choose_device("auto", comm::Comm::solo()).is_cpu());
}

TEST(Device, CudaWithoutAGpuIsAnErrorThatSaysSo) {
  if (has_gpu()) GTEST_SKIP() << "a GPU is visible";
  try {
    choose_device("cuda", comm::Comm::solo());
    FAIL() << "no error";
  } catch (const base::Error& e) {
    EXPECT_TRUE(e.code() == base::ExitCode::usage || e.code() == base::ExitCode::peer);
    EXPECT_FALSE(e.hint().empty());
  }
}

TEST(Device, UnknownNamesAreConfigErrors) {
  EXPECT_THROW(choose_device("gpu", comm::Comm::solo()), base::ConfigError);
  EXPECT_THROW(choose_dtype("float", c10::Device(c10::kCPU)), base::ConfigError);
  EXPECT_THROW(setup_compute(0), base::ConfigError);
}

TEST(Device, DtypeFollowsTheDevice) {
  const c10::Device cpu(c10::kCPU), gpu(c10::kCUDA, 0);
  EXPECT_EQ(choose_dtype("auto", cpu), at::kFloat);
  EXPECT_EQ(choose_dtype("auto", gpu), at::kBFloat16);
  EXPECT_EQ(choose_dtype("bf16", cpu), at::kBFloat16);
  EXPECT_EQ(choose_dtype("fp32", gpu), at::kFloat);
}

TEST(Device, SetupFixesThreadsAndDeterminism) {
  setup_compute(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(at::get_num_interop_threads(), 1);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  setup_compute(1);  // a second call must not throw: tests and embedding programs make it
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
}  // namespace aerie::device
