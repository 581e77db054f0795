// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <aerie/base/philox.hpp>
#include <aerie/train/adamw.hpp>

namespace aerie::train {
namespace {

struct State {
  std::vector<float> p, m, v;
};
State initial(std::size_t n) {
  State s{std::vector<float>(n), std::vector<float>(n, 0.0F), std::vector<float>(n, 0.0F)};
  for (std::size_t i = 0; i < n; ++i) s.p[i] = static_cast<float>(base::random_normal(1, base::Purpose::test, 0, i));
  return s;
}
std::vector<float> gradient(std::size_t n, std::uint64_t step) {
  std::vector<float> g(n);
  for (std::size_t i = 0; i < n; ++i) g[i] = static_cast<float>(0.1 * base::random_normal(2, base::Purpose::test, step, i));
  return g;
}

TEST(AdamW, FollowsTheAlgorithmInDoublePrecision) {
  // The textbook form in fp64; fp32 rounding of each of ten updates is at most a few units in the last place of the terms.
  constexpr std::size_t n = 1003;
  auto s = initial(n);
  std::vector<double> p(s.p.begin(), s.p.end()), m(n, 0.0), v(n, 0.0);
  AdamWOptions o{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_scale = 0.5};
  for (std::uint64_t t = 1; t <= 10; ++t) {
    const auto g = gradient(n, t);
    o.step = static_cast<std::int64_t>(t);
    adamw_step(o, g, s.p, s.m, s.v);
    for (std::size_t i = 0; i < n; ++i) {
      const double gi = static_cast<double>(g[i]) * 0.5;
      p[i] -= 1e-2 * 0.1 * p[i];
      m[i] = 0.9 * m[i] + 0.1 * gi;
      v[i] = 0.95 * v[i] + 0.05 * gi * gi;
      const double mh = m[i] / (1 - std::pow(0.9, static_cast<double>(t))),
                   vh = v[i] / (1 - std::pow(0.95, static_cast<double>(t)));
      p[i] -= 1e-2 * mh / (std::sqrt(vh) + 1e-8);
    }
  }
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(s.p[i], p[i], 2e-6) << i;
}

TEST(AdamW, ShardsOfAnyLengthGiveTheSameBits) {
  constexpr std::size_t n = 4099;
  auto whole = initial(n), cut = initial(n);
  AdamWOptions o{.lr = 1e-3};
  for (std::uint64_t t = 1; t <= 5; ++t) {
    const auto g = gradient(n, t);
    o.step = static_cast<std::int64_t>(t);
    adamw_step(o, g, whole.p, whole.m, whole.v);
    for (std::size_t a = 0, length = 1; a < n; a += length, length = length * 3 % 101 + 1) {  // odd lengths reach the scalar tail
      const auto k = std::min(length, n - a);
      adamw_step(o, std::span(g).subspan(a, k), std::span(cut.p).subspan(a, k), std::span(cut.m).subspan(a, k),
                 std::span(cut.v).subspan(a, k));
    }
  }
  EXPECT_EQ(whole.p, cut.p);
  EXPECT_EQ(whole.m, cut.m);
  EXPECT_EQ(whole.v, cut.v);
}

TEST(AdamW, SumOfSquares) {
  const auto g = gradient(777, 1);
  double expected = 0;
  for (const float x : g) expected += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(sum_of_squares(g), expected, 1e-12 * expected);
  EXPECT_EQ(sum_of_squares(std::vector<float>{}), 0.0);
}

}  // namespace
}  // namespace aerie::train
