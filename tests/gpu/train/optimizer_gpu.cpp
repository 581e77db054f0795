// SPDX-License-Identifier: Apache-2.0
// The optimizer's passes on a GPU give the bits of the host's: fixed point, norms and AdamW, at odd lengths and at edges.
#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <aerie/base/philox.hpp>
#include <aerie/train/fixed_point.hpp>

#include "flat_math.hpp"

namespace aerie::train {
namespace {

class OptimizerGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (at::hasCUDA()) return;
    const char* required = std::getenv("AERIE_REQUIRE");
    if (required && std::string(required).find("gpu") != std::string::npos) FAIL() << "no GPU, and AERIE_REQUIRE asks for one";
    GTEST_SKIP() << "no GPU";
  }
};

/// Gradients of many sizes, zeros and negatives among them.
at::Tensor gradients(std::int64_t n, std::uint64_t stream) {
  auto t = at::empty({n}, at::kFloat);
  auto* p = t.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto r = base::random_u64(21, base::Purpose::test, stream, static_cast<std::uint64_t>(i));
    const double unit = static_cast<double>(r >> 11) * 0x1p-52 - 1.0;
    p[i] = static_cast<float>(std::ldexp(unit, static_cast<int>(r % 70) - 60));
  }
  return t;
}
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.cpu().contiguous().view(at::kByte), b.cpu().contiguous().view(at::kByte));
}

TEST_F(OptimizerGpu, FixedPointSumsAreTheHosts) {
  for (const std::int64_t n : {1, 3, 4, 255, 4096, 1000003}) {
    auto host = at::zeros({n + 5}, at::kLong), device = host.cuda();
    for (std::uint64_t pack = 0; pack < 3; ++pack) {
      const auto g = gradients(n, pack);
      EXPECT_EQ(flat::add_fixed_point(g, host, 8), -1);
      EXPECT_EQ(flat::add_fixed_point(g.cuda(), device, 8), -1);
    }
    EXPECT_TRUE(at::equal(host, device.cpu())) << n;
    EXPECT_NE(host.abs().max().item<std::int64_t>(), 0);
    const auto back = at::empty({n + 5}, at::kFloat), back_device = back.cuda();
    flat::from_fixed_point(host, back);
    flat::from_fixed_point(device, back_device);
    EXPECT_TRUE(same_bytes(back, back_device)) << n;
  }
}

TEST_F(OptimizerGpu, NamesTheFirstValueOutOfRange) {
  const float limit = static_cast<float>(fixed_point_range / 8);
  for (const float bad : {limit, -limit, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto g = gradients(70001, 4);
    g.mutable_data_ptr<float>()[70000] = bad;
    g.mutable_data_ptr<float>()[50001] = bad;
    const auto sum = at::zeros({70001}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
    EXPECT_EQ(flat::add_fixed_point(g.cuda(), sum, 8), 50001);
  }
  auto g = gradients(1000, 4);
  g.mutable_data_ptr<float>()[999] = std::nextafter(limit, 0.0F);
  EXPECT_EQ(flat::add_fixed_point(g.cuda(), at::zeros({1000}, at::TensorOptions(at::kCUDA).dtype(at::kLong)), 8), -1);
}

TEST_F(OptimizerGpu, SumsReadBackAreRoundedAsOnTheHost) {
  auto sum = at::empty({100000}, at::kLong);
  for (std::int64_t i = 0; i < sum.numel(); ++i) {
    const auto r = base::random_u64(22, base::Purpose::test, 0, static_cast<std::uint64_t>(i));
    sum.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(r) >> (r % 63);
  }
  const auto host = at::empty({100000}, at::kFloat), device = host.cuda();
  flat::from_fixed_point(sum, host);
  flat::from_fixed_point(sum.cuda(), device);
  EXPECT_TRUE(same_bytes(host, device));
}

TEST_F(OptimizerGpu, BlockSumsAreTheHosts) {
  for (const std::int64_t blocks : {1, 2, 5}) {
    const auto g = gradients(blocks * block_elements, 5);
    EXPECT_EQ(flat::block_sums(g), flat::block_sums(g.cuda())) << blocks;
  }
}

TEST_F(OptimizerGpu, AdamWStepsAreTheHosts) {
  const std::int64_t n = 300007;
  auto p = gradients(n, 6), m = at::zeros({n}, at::kFloat), v = at::zeros({n}, at::kFloat);
  auto dp = p.cuda(), dm = m.cuda(), dv = v.cuda();
  AdamWOptions o;
  o.lr = 3e-4;
  o.weight_decay = 0.1;
  for (o.step = 1; o.step <= 5; ++o.step) {
    o.grad_scale = o.step % 2 ? 0.37 : 1.0;
    const auto g = gradients(n, 10 + static_cast<std::uint64_t>(o.step));
    flat::adamw(o, g, p, m, v);
    flat::adamw(o, g.cuda(), dp, dm, dv);
  }
  EXPECT_TRUE(same_bytes(p, dp));
  EXPECT_TRUE(same_bytes(m, dm));
  EXPECT_TRUE(same_bytes(v, dv));
}

}  // namespace
}  // namespace aerie::train
