// SPDX-License-Identifier: Apache-2.0
// draft::unroll against numbers that other software computed: tests/golden/draft/reference.py (plain PyTorch, autograd, fp64),
// and SpecForge itself. How the files were made, and what SpecForge does differently: tests/golden/draft/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <aerie/base/json.hpp>
#include <aerie/dataset/loss_slots.hpp>
#include <aerie/draft/unroll.hpp>

#include "problem.hpp"

namespace aerie::test {
namespace {

// fp64. Rounding: unit roundoff 1.1e-16; the longest dependent chain is 4 steps forward and back, each about 10 sums of at most
// 72 terms, so 4 * 2 * 10 * 72 * 1.1e-16 = 6e-13 in the worst case, times the cancellation in a gradient's sum over 29 slots,
// taken as up to 100. A wrong formula moves some gradient by 0.1 or more (tried on the reference: position without k, detached
// state or keys, state fed back after the norm, later keys causal, normed residual, kv heads interleaved, teacher one slot
// early); even an eps of 1e-6 for 1e-5 by 4e-5.
constexpr double fp64_tolerance = 1e-10;

// fp32. The same chain with unit roundoff 6e-8 is 3.4e-4 in the worst case; errors of random sign add up as the square root of
// the length (80 sums of 72 terms: sqrt(5760) * 6e-8 = 4.5e-6), times the same cancellation of up to 100.
constexpr double fp32_tolerance = 4.5e-4;

draft::UnrollOptions options_of(const base::Json& c, std::int64_t ttt_steps) {
  draft::UnrollOptions options;
  options.ttt_steps = ttt_steps;
  options.alignment = dataset::mask_alignment_from_name(c.at("alignment").get<std::string>());
  options.oov = draft::oov_from_name(c.at("oov").get<std::string>());
  return options;
}

/// Compares one case; returns the largest relative difference of all losses and gradients.
double compare(const Problem& problem, const base::Json& c, double tolerance) {
  const auto got = run(problem, problem.pack, options_of(c, problem.ttt_steps), c.at("coefficients").get<std::vector<double>>());
  double worst = 0;
  const auto note = [&](double difference, const std::string& what) {
    EXPECT_LT(difference, tolerance) << what;
    worst = std::max(worst, difference);
  };
  for (std::size_t k = 0; k < got.result.steps.size(); ++k) {
    SCOPED_TRACE("step " + std::to_string(k));
    const auto& s = got.result.steps[k];
    const auto& e = c.at("steps").at(k);
    EXPECT_EQ(s.slots, e.at("slots").get<std::int64_t>());
    EXPECT_EQ(s.matches, e.at("matches").get<std::int64_t>());
    EXPECT_EQ(s.cumulative, e.at("cumulative").get<std::int64_t>());
    note(std::abs(s.loss / e.at("loss").get<double>() - 1), "loss");
    note(std::abs(s.overlap / e.at("overlap").get<double>() - 1), "overlap");
  }
  note(std::abs(got.result.weighted_loss / c.at("total").get<double>() - 1), "weighted loss");
  const auto file = golden(c.at("file"));
  for (std::size_t i = 0; i < got.names.size(); ++i)
    note(relative_difference(got.grads[i], read_tensor(file, got.names[i])), "gradient of " + got.names[i]);
  return worst;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  base::Json record = base::read_json(golden(std::string(GetParam()) + ".json"));

  void each_case(c10::ScalarType dtype, double tolerance) {
    const auto problem = read_problem(record, dtype);
    double worst = 0;
    for (const auto& c : record.at("cases")) {
      SCOPED_TRACE(c.at("file").get<std::string>());
      worst = std::max(worst, compare(problem, c, tolerance));
    }
    EXPECT_GT(worst, 0) << "not one bit differs from other software's result: compared with itself?";
    RecordProperty("largest_relative_difference", std::to_string(worst));
    std::cout << GetParam() << ": largest relative difference " << worst << '\n';
  }
};
INSTANTIATE_TEST_SUITE_P(Problems, Golden, testing::Values("square", "wide"), [](const auto& p) { return std::string(p.param); });

TEST_P(Golden, fp64_losses_counts_and_every_gradient) { each_case(at::kDouble, fp64_tolerance); }
TEST_P(Golden, fp32_within_rounding) { each_case(at::kFloat, fp32_tolerance); }

TEST_P(Golden, all_cases_are_there) { EXPECT_EQ(record.at("cases").size(), std::string(GetParam()) == "square" ? 12U : 3U); }

// n_k by the planner's table against the reference's count of the same slots.
TEST_P(Golden, loss_slot_counts) {
  const auto problem = read_problem(record, at::kDouble);
  for (const auto& c : record.at("cases")) {
    SCOPED_TRACE(c.at("file").get<std::string>());
    std::vector<std::int64_t> n(static_cast<std::size_t>(problem.ttt_steps));
    std::size_t begin = 0;
    for (const auto length : problem.pack.lengths) {
      const auto counts =
          dataset::loss_slot_counts(std::span(problem.pack.mask).subspan(begin, static_cast<std::size_t>(length)),
                                    problem.ttt_steps, dataset::mask_alignment_from_name(c.at("alignment").get<std::string>()),
                                    dataset::normalize_from_name(c.at("normalize").get<std::string>()));
      for (std::size_t k = 0; k < n.size(); ++k) n[k] += counts.at(k);
      begin += static_cast<std::size_t>(length);
    }
    const bool all = c.at("normalize") == "all";
    for (std::size_t k = 0; k < n.size(); ++k)
      EXPECT_EQ(n[k], c.at("steps").at(k).at(all ? "positions" : "slots").get<std::int64_t>());
  }
}

TEST_P(Golden, draft_choices) {
  const auto problem = read_problem(record, at::kDouble);
  const auto got = draft::draft_choices(problem.shape, draft::view_weights(problem.shape, problem.flat), problem.target,
                                        problem.vocab, problem.pack, problem.ttt_steps);
  const auto file = golden(std::string(GetParam()) + ".choices.safetensors");
  const auto draft_ids = read_tensor(file, "draft_ids"), teacher_ids = read_tensor(file, "teacher_ids"),
             overlap = read_tensor(file, "overlap");
  ASSERT_EQ(got.draft_ids.sizes(), draft_ids.sizes());
  std::int64_t with_loss = 0, begin = 0;
  for (const auto S : problem.pack.lengths) {
    const std::span mask(problem.pack.mask.data() + begin, static_cast<std::size_t>(S));
    for (std::int64_t k = 0; k < problem.ttt_steps; ++k)
      for (std::int64_t t = 0; t < S; ++t) {
        const auto mine = got.draft_ids[k][begin + t].item<std::int64_t>();
        if (dataset::slot_has_loss(mask, t, k, dataset::MaskAlignment::predicted)) {
          ++with_loss;
          EXPECT_EQ(mine, draft_ids[k][begin + t].item<std::int64_t>());
        } else if (mine == -1) {
          continue;  // not asked of a slot without loss
        }
        EXPECT_EQ(mine, draft_ids[k][begin + t].item<std::int64_t>());
        EXPECT_EQ(got.teacher_ids[k][begin + t].item<std::int64_t>(), teacher_ids[k][begin + t].item<std::int64_t>());
        EXPECT_NEAR(got.overlap[k][begin + t].item<double>(), overlap[k][begin + t].item<double>(), fp64_tolerance);
      }
    begin += S;
  }
  EXPECT_EQ(with_loss, 45);
}

// SpecForge a6b6b02 ran on the same weights and documents, padded to one length. `precision` says how it computed.
void compare_with_specforge(const char* precision, double tolerance) {
  const auto record = base::read_json(golden("specforge.json"));
  const auto problem = read_problem(base::read_json(golden("square.json")), at::kDouble);
  ASSERT_EQ(record.at("alignment"), "hidden");
  ASSERT_EQ(record.at("oov"), "mask");
  const auto got =
      run(problem, problem.pack, options_of(record, problem.ttt_steps), record.at("coefficients").get<std::vector<double>>());
  const auto& expected = record.at(precision);
  for (std::size_t k = 0; k < got.result.steps.size(); ++k) {
    SCOPED_TRACE("step " + std::to_string(k));
    const auto& s = got.result.steps[k];
    const double loss = s.loss / record.at("positions").get<double>();
    EXPECT_LT(std::abs(loss / expected.at("step_losses").at(k).get<double>() - 1), tolerance);
    EXPECT_EQ(static_cast<double>(s.slots), expected.at("slots").at(k).get<double>());
    EXPECT_EQ(static_cast<double>(s.matches), expected.at("correct").at(k).get<double>());
  }
  EXPECT_LT(std::abs(got.result.weighted_loss / expected.at("total").get<double>() - 1), tolerance);
  const auto file = golden(std::string("specforge.") + precision + ".safetensors");
  for (std::size_t i = 0; i < got.names.size(); ++i)
    EXPECT_LT(relative_difference(got.grads[i], read_tensor(file, got.names[i])), tolerance) << "gradient of " << got.names[i];
}
TEST(GoldenSpecForge, fp64_losses_counts_and_every_gradient) { compare_with_specforge("fp64", fp64_tolerance); }
TEST(GoldenSpecForge, fp32_as_it_is) { compare_with_specforge("fp32", fp32_tolerance); }

}  // namespace
}  // namespace aerie::test
