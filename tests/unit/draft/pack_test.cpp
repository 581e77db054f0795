// SPDX-License-Identifier: Apache-2.0
// What draft::unroll promises about packs: documents do not see each other, chunk sizes change nothing, slots without loss are
// left out except that later slots attend to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "problem.hpp"

namespace aerie::test {
namespace {

// fp64; the same terms summed in another order: at most some hundred roundings of 1.1e-16 relative to the largest term.
constexpr double same_sum = 1e-12;

const std::vector<std::vector<std::uint8_t>> masks = {
    {1}, {0, 0, 1, 1, 0, 1, 1}, {1, 1}, {0, 1, 1, 1}, {0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}};
const std::vector<double> step_weights = {0.1, 0.08, 0.064, 0.05};

draft::UnrollOptions four_steps() {
  draft::UnrollOptions options;
  options.ttt_steps = 4;
  return options;
}

void expect_same_counts(const draft::StepSums& a, const draft::StepSums& b) {
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.matches, b.matches);
  EXPECT_EQ(a.cumulative, b.cumulative);
}

TEST(Pack, is_the_sum_of_its_documents) {
  const auto problem = random_problem(3, masks, 4);
  for (const auto alignment : {dataset::MaskAlignment::predicted, dataset::MaskAlignment::input, dataset::MaskAlignment::hidden})
    for (const auto oov : {draft::Oov::mask, draft::Oov::keep}) {
      auto options = four_steps();
      options.alignment = alignment;
      options.oov = oov;
      const auto whole = run(problem, problem.pack, options, step_weights);
      std::vector<draft::StepSums> steps(4);
      std::vector<at::Tensor> grads;
      for (const auto& g : whole.grads) grads.push_back(at::zeros_like(g));
      double loss = 0;
      for (std::size_t d = 0; d < masks.size(); ++d) {
        const auto one = run(problem, select(problem.pack, {d}), options, step_weights);
        loss += one.result.weighted_loss;
        for (std::size_t k = 0; k < steps.size(); ++k) {
          const auto& s = one.result.steps.at(k);
          steps[k].slots += s.slots;
          steps[k].matches += s.matches;
          steps[k].cumulative += s.cumulative;
          steps[k].loss += s.loss;
          steps[k].overlap += s.overlap;
        }
        for (std::size_t i = 0; i < grads.size(); ++i) grads[i] += one.grads[i];
      }
      EXPECT_GT(loss, 0);
      EXPECT_NEAR(whole.result.weighted_loss / loss, 1, same_sum);
      for (std::size_t k = 0; k < steps.size(); ++k) {
        expect_same_counts(whole.result.steps[k], steps[k]);
        EXPECT_GT(steps[k].slots, 0);
        EXPECT_NEAR(whole.result.steps[k].loss / steps[k].loss, 1, same_sum);
        EXPECT_NEAR(whole.result.steps[k].overlap / steps[k].overlap, 1, same_sum);
      }
      for (std::size_t i = 0; i < grads.size(); ++i)
        EXPECT_LT(relative_difference(whole.grads[i], grads[i]), same_sum) << whole.names[i];
    }
}

TEST(Pack, order_of_documents_changes_nothing_but_rounding) {
  const auto problem = random_problem(3, masks, 4);
  const auto a = run(problem, problem.pack, four_steps(), step_weights);
  const auto b = run(problem, select(problem.pack, {5, 3, 1, 0, 4, 2}), four_steps(), step_weights);
  for (std::size_t k = 0; k < 4; ++k) expect_same_counts(a.result.steps[k], b.result.steps[k]);
  for (std::size_t i = 0; i < a.grads.size(); ++i) EXPECT_LT(relative_difference(a.grads[i], b.grads[i]), same_sum) << a.names[i];
}

TEST(Pack, without_loss_gives_zeros) {
  const auto problem = random_problem(3, masks, 4);
  const auto none = run(problem, select(problem.pack, {0, 4}), four_steps(), step_weights);
  EXPECT_EQ(none.result.weighted_loss, 0);
  ASSERT_EQ(none.result.steps.size(), 4U);
  for (const auto& s : none.result.steps) expect_same_counts(s, {});
  for (const auto& g : none.grads) EXPECT_EQ(g.abs().max().item<double>(), 0);
}

TEST(Pack, the_same_pack_gives_the_same_bits) {
  const auto problem = random_problem(3, masks, 4);
  const auto a = run(problem, problem.pack, four_steps(), step_weights),
             b = run(problem, problem.pack, four_steps(), step_weights);
  EXPECT_EQ(a.result.weighted_loss, b.result.weighted_loss);
  for (std::size_t i = 0; i < a.grads.size(); ++i) EXPECT_TRUE(at::equal(a.grads[i], b.grads[i])) << a.names[i];
}

TEST(Pack, chunk_sizes_change_no_count) {
  const auto problem = random_problem(3, masks, 4);
  const auto whole = run(problem, problem.pack, four_steps(), step_weights);
  EXPECT_GT(whole.result.steps[0].matches, 0);
  for (const std::int64_t slots : {1, 2, 5, 1024})
    for (const std::int64_t columns : {1, 3, 7, 19, 20, 16384}) {
      SCOPED_TRACE("chunk_slots " + std::to_string(slots) + ", chunk_vocab " + std::to_string(columns));
      auto options = four_steps();
      options.chunk_slots = slots;
      options.chunk_vocab = columns;
      const auto got = run(problem, problem.pack, options, step_weights);
      for (std::size_t k = 0; k < 4; ++k) {
        expect_same_counts(got.result.steps[k], whole.result.steps[k]);
        EXPECT_NEAR(got.result.steps[k].overlap / whole.result.steps[k].overlap, 1, same_sum);
      }
      EXPECT_NEAR(got.result.weighted_loss / whole.result.weighted_loss, 1, same_sum);
      for (std::size_t i = 0; i < got.grads.size(); ++i)
        EXPECT_LT(relative_difference(got.grads[i], whole.grads[i]), same_sum) << got.names[i];
    }
}

TEST(Pack, gradients_are_added_to_what_is_there) {
  const auto problem = random_problem(3, masks, 4);
  const auto once = run(problem, problem.pack, four_steps(), step_weights);
  const auto flat_grad = at::zeros_like(problem.flat);
  auto grads = draft::view_weights(problem.shape, flat_grad);
  const auto weights = draft::view_weights(problem.shape, problem.flat);
  for (int i = 0; i < 2; ++i)
    draft::unroll(problem.shape, weights, problem.target, problem.vocab, problem.pack, four_steps(), step_weights, &grads);
  std::vector<at::Tensor> parts;
  for (const auto& g : once.grads) parts.push_back(g.flatten());
  EXPECT_LT(relative_difference(flat_grad, at::cat(parts) * 2), same_sum);
}

// One slot's states get a feature that no other slot has, so that fc's gradient in that column is this slot's alone.
class OneSlot : public testing::Test {
 protected:
  // Loss at tokens 6, 7, 8: under `predicted` with 3 steps the active slots are 2 (step 2) to 6 (step 0).
  Problem problem = random_problem(4, {{0, 0, 0, 0, 0, 0, 1, 1, 1, 0}}, 3);
  draft::UnrollOptions options;
  std::vector<double> w = {0.2, 0.15, 0.1};
  const std::int64_t column = 5;

  void give_feature_to(std::int64_t slot) {
    options.ttt_steps = 3;
    options.oov = draft::Oov::keep;
    problem.pack.aux.select(1, column).zero_();
    problem.pack.aux[slot][column] = 1.5;
  }
  at::Tensor column_gradient() { return run(problem, problem.pack, options, w).grads[0].select(1, column); }
};

TEST_F(OneSlot, without_loss_still_gets_gradient_through_its_key_and_value) {
  for (const std::int64_t slot : {0, 1}) {
    give_feature_to(slot);
    const auto grad = column_gradient();
    EXPECT_GT(grad.abs().max().item<double>(), 1e-4) << "slot " << slot;
    for (std::int64_t row = 0; row < problem.shape.hidden_size; ++row) {
      const double h = 1e-5;
      auto up = problem.flat.clone(), down = problem.flat.clone();
      const auto at_value = row * 3 * problem.shape.target_hidden_size + column;  // fc.weight is the first tensor
      up[at_value] += h;
      down[at_value] -= h;
      const double difference = (loss_of(problem, up, options, w) - loss_of(problem, down, options, w)) / (2 * h);
      EXPECT_NEAR(grad[row].item<double>(), difference, 1e-6 * grad.abs().max().item<double>())
          << "slot " << slot << " row " << row;
    }
  }
}

TEST_F(OneSlot, that_nobody_reads_gets_none) {
  for (const std::int64_t slot : {7, 8, 9}) {
    give_feature_to(slot);
    EXPECT_EQ(column_gradient().abs().max().item<double>(), 0) << "slot " << slot;
  }
}

TEST_F(OneSlot, with_loss_at_a_late_step_only_is_active) {
  give_feature_to(2);
  w = {0, 0, 0.1};
  problem.pack.mask = {0, 0, 0, 0, 0, 0, 1, 0, 0, 0};  // step 2 of slot 2 alone
  const auto got = run(problem, problem.pack, options, w);
  EXPECT_EQ(got.result.steps[2].slots, 1);
  EXPECT_GT(got.grads[0].select(1, column).abs().max().item<double>(), 1e-4);
}

}  // namespace
}  // namespace aerie::test
