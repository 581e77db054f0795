// SPDX-License-Identifier: Apache-2.0
// Every weight's gradient of draft::unroll against central differences of its own forward pass, in fp64. The forward pass itself
// is compared with other software in golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <ATen/ATen.h>

#include "problem.hpp"

namespace aerie::test {
namespace {

// Central differences with step h = 1e-5: truncation h^2/6 * f''' and rounding about 100 * 1.1e-16 * |L| / h, both under 1e-8 for
// losses and derivatives of order 1 to 10. Against each tensor's largest gradient (0.01 to 1 here) that is under 1e-6.
constexpr double h = 1e-5;
constexpr double tolerance = 1e-6;
constexpr int probes_per_tensor = 40;

void check_gradients(const Problem& problem, const draft::UnrollOptions& options, const std::vector<double>& coefficients) {
  const auto got = run(problem, problem.pack, options, coefficients);
  std::mt19937_64 generator(7);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < got.names.size(); ++i) {
    const auto n = got.grads[i].numel();
    const auto grad = got.grads[i].flatten();
    const double largest = grad.abs().max().item<double>();
    EXPECT_GT(largest, 1e-3) << got.names[i] << ": too small a gradient to test";
    for (int probe = 0; probe < probes_per_tensor; ++probe) {
      // Small tensors are probed whole, larger ones at random.
      if (n <= probes_per_tensor && probe >= n) break;
      const auto j = n <= probes_per_tensor ? probe : static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(n));
      auto flat = problem.flat.clone();
      auto* value = flat.data_ptr<double>() + begin + j;
      const double at_zero = *value;
      *value = at_zero + h;
      const double up = loss_of(problem, flat, options, coefficients);
      *value = at_zero - h;
      const double down = loss_of(problem, flat, options, coefficients);
      EXPECT_NEAR(grad[j].item<double>(), (up - down) / (2 * h), tolerance * largest) << got.names[i] << " [" << j << "]";
    }
    begin += n;
  }
}

TEST(Gradient, every_tensor_by_central_differences) {
  const auto problem = random_problem(1, {{0, 1, 1, 0, 1, 1, 1}, {1, 0, 1, 1}}, 3);
  draft::UnrollOptions options;
  options.ttt_steps = 3;
  options.oov = draft::Oov::keep;  // no slot falls out: as many terms as possible
  check_gradients(problem, options, {0.2, 0.15, 0.1});
}

// A step whose coefficient is zero is dropped from the loss, but states and keys still run through it.
TEST(Gradient, only_the_last_step_has_loss) {
  const auto problem = random_problem(2, {{0, 1, 1, 1, 1, 1, 1}}, 3);
  draft::UnrollOptions options;
  options.ttt_steps = 3;
  options.oov = draft::Oov::keep;
  check_gradients(problem, options, {0, 0, 0.3});
}

}  // namespace
}  // namespace aerie::test
