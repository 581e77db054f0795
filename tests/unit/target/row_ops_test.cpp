// SPDX-License-Identifier: Apache-2.0
// The CPU's row kernels against LibTorch's operations and against double precision; and the placing of samples in groups.
#include "row_ops.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <aerie/base/bfloat16.hpp>

#include "batch_plan.hpp"
#include "row_kernels.hpp"

namespace aerie::target {
namespace {

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

at::Tensor random(std::vector<std::int64_t> shape, at::ScalarType dtype, double scale = 1.0) {
  return (at::randn(shape) * scale).to(dtype);
}

// fp32: a handful of roundings of 2^-24 each. Half types: both sides round the same fp32 values once (or at the same points),
// so all but the ties broken by the last fp32 bit agree; one flip in a hundred values is 2^-8 * 0.1.
double tolerance(at::ScalarType dtype) { return dtype == at::kFloat ? 3e-7 : 1e-3; }

class RowOps : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {};

TEST_P(RowOps, AgreeWithLibTorch) {
  const auto& [dtype, hf] = GetParam();
  const at::Tensor x = random({5, 75}, dtype, 3.0);
  const NormWeight norm{random({75}, dtype).to(at::kFloat), 1e-2};
  at::Tensor a = at::empty_like(x), b = at::empty_like(x);
  cpu::rms_norm(x, norm, hf, a);
  aten::rms_norm(x, norm, hf, b);
  EXPECT_LE(relative(a, b), tolerance(dtype));

  at::Tensor gate_up = random({5, 2 * 37}, dtype, 4.0), act = at::empty({5, 37}, x.options()), act_b = at::empty_like(act);
  cpu::swiglu(gate_up, hf, act);
  aten::swiglu(gate_up, hf, act_b);
  EXPECT_LE(relative(act, act_b), tolerance(dtype));

  at::Tensor sum = x.clone(), sum_b = x.clone();
  cpu::add_rows(sum, a);
  aten::add_rows(sum_b, a);
  EXPECT_TRUE(at::equal(sum, sum_b));

  const HeadLayout layout{3, 2, 20};
  const at::Tensor qkv = random({9, layout.columns()}, dtype), phase = at::randn({12, 10}) * 5.0;
  const RopeAngles angles{phase.cos(), phase.sin()};
  const NormWeight qn{random({20}, dtype).to(at::kFloat), 1e-6}, kn{random({20}, dtype).to(at::kFloat), 1e-6}, none;
  for (const bool with_norm : {false, true}) {
    const Heads got = cpu::split_heads(qkv, layout, with_norm ? qn : none, with_norm ? kn : none, angles, hf);
    const Heads want = aten::split_heads(qkv, layout, with_norm ? qn : none, with_norm ? kn : none, angles, hf);
    EXPECT_LE(relative(got.q, want.q), tolerance(dtype));
    EXPECT_LE(relative(got.k, want.k), tolerance(dtype));
    EXPECT_TRUE(at::equal(got.v, want.v));
    EXPECT_TRUE(at::equal(got.v, qkv.narrow(1, 100, 40).reshape({9, 2, 20})));
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, RowOps,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf), testing::Bool()));

TEST(RowKernels, SiluIsAccurateOverTheWholeRange) {
  std::vector<float> x, y;
  for (double v = -120.0; v <= 120.0; v += 0.00731) x.push_back(static_cast<float>(v));
  y.resize(x.size());
  kernels::silu(x.data(), y.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], want = v / (1.0 + std::exp(-v));
    ASSERT_NEAR(y[i], want, std::abs(want) * 4e-7 + 1e-35) << v;  // 6 ulp; below -87 the exponential is held
  }
  const float odd[3] = {NAN, INFINITY, 0.0F};
  float out[3];
  kernels::silu(odd, out, 3);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], INFINITY);
  EXPECT_EQ(out[2], 0.0F);
}

// Body and tail of a vectorised loop must be the same arithmetic: a value does not depend on its place.
TEST(RowKernels, PlaceDoesNotMatter) {
  const at::Tensor x = at::randn({67}) * 10;
  std::vector<float> whole(67);
  kernels::silu(x.const_data_ptr<float>(), whole.data(), 67);
  for (std::size_t i = 0; i < 67; ++i) {
    float one = 0;
    kernels::silu(x.const_data_ptr<float>() + i, &one, 1);
    ASSERT_EQ(one, whole[i]);
  }
}

TEST(RowKernels, BfloatRoundingIsTheScalarOne) {
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 70000; ++i) x.push_back(std::bit_cast<float>(i * 61357U));
  std::vector<std::uint16_t> bits(x.size());
  kernels::float_to_bf16(x.data(), bits.data(), x.size());
  std::vector<float> back(x.size());
  kernels::bf16_to_float(bits.data(), back.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits[i], base::float_to_bf16(x[i]));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::uint32_t{bits[i]} << 16);
  }
}

TEST(BatchPlan, PacksWholeSamplesIntoWholeBlocks) {
  const std::int64_t lengths[] = {100, 50, 1, 200, 300, 7};
  const auto plan = plan_batch(lengths, 64, 250);
  ASSERT_EQ(plan.groups.size(), 4U);
  EXPECT_EQ(plan.groups[0].rows, 192);  // 100 + 50 + 1
  EXPECT_EQ(plan.groups[1].first, 192);
  EXPECT_EQ(plan.groups[1].rows, 256);  // 200
  EXPECT_EQ(plan.groups[2].first, 448);
  EXPECT_EQ(plan.groups[2].rows, 320);  // 300: longer than a group may be, so alone
  EXPECT_EQ(plan.groups[3].rows, 64);
  EXPECT_EQ(plan.rows, 832);
  EXPECT_EQ(plan.largest_group, 320);
  EXPECT_EQ(plan.samples[2].first, 150);
  EXPECT_EQ(plan.longest, 300);
}

}  // namespace
}  // namespace aerie::target
