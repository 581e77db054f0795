// SPDX-License-Identifier: Apache-2.0
// The target on a GPU: fp32 close to the CPU, bf16 close to fp32, and the same bytes for a sample whatever its company, at
// shapes whose cuBLAS kernels are known to change rows with the number of rows (K = 7168 with N = 1536 and N = 576).
#include <aerie/device/device.hpp>
#include <aerie/target/target_model.hpp>

#include <cstdlib>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "random_model.hpp"
#include "temp_dir.hpp"

namespace aerie::target {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<Ids> samples(std::int64_t vocab) {
  std::vector<Ids> result;
  for (const std::uint64_t n : {7, 1, 300, 129, 64, 1000, 2}) {
    auto& ids = result.emplace_back();
    for (std::uint64_t t = 0; t < n; ++t) {
      ids.push_back(
          static_cast<std::int32_t>(base::random_u64(5, base::Purpose::test, n, t) % static_cast<std::uint64_t>(vocab)));
    }
  }
  return result;
}

std::vector<at::Tensor> run(const TargetModel& model, const std::vector<const Ids*>& which) {
  std::vector<std::span<const std::int32_t>> batch;
  for (const auto* ids : which) batch.emplace_back(*ids);
  std::vector<at::Tensor> result;
  for (const auto& s : model.forward(batch)) result.push_back(at::cat({s.aux, s.last.unsqueeze(1)}, 1).cpu());
  return result;
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

class TargetGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) {
      const char* required = std::getenv("AERIE_REQUIRE");
      if (required && std::string(required).find("gpu") != std::string::npos) FAIL() << "no GPU, and AERIE_REQUIRE asks for one";
      GTEST_SKIP() << "no GPU";
    }
    device::setup_compute(1);
  }
  TargetModel load(const test::RandomModel& model, c10::Device device, c10::ScalarType dtype, bool streamed = false) {
    model.write(dir_.path());
    TargetOptions options;
    options.device = device;
    options.dtype = dtype;
    options.gemm_rows = 256;
    options.aux_layers = {1, 1, 2};
    options.streamed = streamed;
    return TargetModel::load(interchange::ModelDirectory::open(dir_.path()), options);
  }
  test::TempDir dir_;
  const c10::Device cpu_{c10::kCPU}, gpu_{c10::kCUDA, 0};
};

TEST_F(TargetGpu, AgreesWithTheCpu) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const test::RandomModel shape{type, 256, 384, 2, 4, 2, 64, 64, {}};
    const auto on_cpu = load(shape, cpu_, at::kFloat), on_gpu = load(shape, gpu_, at::kFloat);
    const auto half = load(shape, gpu_, at::kBFloat16);
    for (const auto& ids : samples(shape.vocab)) {
      const auto want = run(on_cpu, {&ids})[0];
      EXPECT_LE(relative(run(on_gpu, {&ids})[0], want), 3e-6) << type << " " << ids.size();
      const double d = relative(run(half, {&ids})[0], want);
      EXPECT_LE(d, 2e-2) << type << " " << ids.size();
      EXPECT_GT(d, 1e-4) << "bf16 cannot be this close";
    }
  }
}

TEST_F(TargetGpu, SameBytesWhateverTheCompany) {
  const test::RandomModel shapes[] = {
      {"llama", 7168, 288, 2, 8, 2, 128, 64, {}},  // q|k|v and gate|up: K = 7168, N = 1536 and N = 576
      {"qwen3", 576, 1536, 2, 9, 3, 64, 64, {}},
  };
  for (const auto& shape : shapes) {
    const auto model = load(shape, gpu_, at::kBFloat16);
    const auto all = samples(shape.vocab);
    std::vector<const Ids*> forward, backward;
    for (const auto& ids : all) forward.push_back(&ids);
    backward.assign(forward.rbegin(), forward.rend());
    const auto together = run(model, forward), reversed = run(model, backward);
    const auto streamed = run(load(shape, gpu_, at::kBFloat16, true), forward);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(same_bytes(run(model, {&all[i]})[0], together[i])) << shape.hidden << " alone: " << all[i].size();
      EXPECT_TRUE(same_bytes(reversed[all.size() - 1 - i], together[i])) << shape.hidden << " in reverse: " << all[i].size();
      EXPECT_TRUE(same_bytes(streamed[i], together[i])) << shape.hidden << " streamed: " << all[i].size();
    }
  }
}

}  // namespace
}  // namespace aerie::target
