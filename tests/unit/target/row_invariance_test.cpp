// SPDX-License-Identifier: Apache-2.0
// A sample's states depend on the sample alone: not on its neighbours, their order, the batch, streaming, or what ran before.
// Raw bytes are compared. Shapes include the ones whose GEMMs are known to change rows with the number of rows.
#include <aerie/target/target_model.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "random_model.hpp"
#include "temp_dir.hpp"

namespace aerie::target {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<Ids> make_samples(const std::vector<std::int64_t>& lengths, std::int64_t vocab) {
  std::vector<Ids> samples;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Ids ids;
    for (std::int64_t t = 0; t < lengths[i]; ++t) {
      ids.push_back(
          static_cast<std::int32_t>(base::random_u64(5, base::Purpose::test, i, static_cast<std::uint64_t>(t)) % vocab));
    }
    samples.push_back(std::move(ids));
  }
  return samples;
}

std::string bytes(const at::Tensor& t) {
  const at::Tensor c = t.contiguous();
  return {static_cast<const char*>(c.const_data_ptr()), c.nbytes()};
}

/// States of the samples `which`, run as one batch in that order.
std::map<std::size_t, std::string> run(const TargetModel& model, const std::vector<Ids>& samples,
                                       const std::vector<std::size_t>& which) {
  std::vector<std::span<const std::int32_t>> batch;
  for (const auto i : which) batch.emplace_back(samples[i]);
  const auto states = model.forward(batch);
  std::map<std::size_t, std::string> result;
  for (std::size_t j = 0; j < which.size(); ++j) {
    EXPECT_EQ(states[j].last.size(0), std::ssize(samples[which[j]]));
    EXPECT_TRUE(at::isfinite(states[j].last).all().item<bool>());
    result[which[j]] = bytes(states[j].aux) + bytes(states[j].last);
  }
  return result;
}

struct Shape {
  const char* name;
  test::RandomModel model;
  std::vector<std::int64_t> lengths;
  std::array<std::int32_t, 3> aux;
  std::size_t step;  // every step-th sample is also run alone (the large shapes take long)
};

const std::vector<std::int64_t> few = {7, 1, 130, 33, 61, 2};
const Shape shapes[] = {
    // q|k|v 576 -> 192 (64 + 2 x 64) and the MLP 576 -> 2 x 1536 -> 576
    {"k576_n192", {"llama", 576, 1536, 1, 1, 1, 64, 64, {}}, few, {0, 1, 1}, 2},
    {"smollm", {"llama", 576, 1536, 1, 9, 3, 64, 64, {}}, few, {0, 1, 1}, 2},
    {"qwen2_odd", {"qwen2", 72, 100, 3, 3, 1, 24, 64, {}}, {7, 1, 300, 33, 61, 2, 290, 129}, {1, 2, 3}, 1},
    {"qwen3_wide_heads", {"qwen3", 72, 104, 3, 6, 2, 32, 64, {}}, {7, 1, 300, 33, 61, 2, 290, 129}, {1, 2, 3}, 1},
};

class RowInvariance : public testing::TestWithParam<std::tuple<int, std::int64_t, at::ScalarType, int>> {};

TEST_P(RowInvariance, SameBytesWhateverTheCompany) {
  const auto& [index, gemm_rows, dtype, threads] = GetParam();
  const Shape& shape = shapes[index];
  test::TempDir dir;
  shape.model.write(dir.path());
  at::set_num_threads(threads);
  TargetOptions options;
  options.dtype = dtype;
  options.gemm_rows = gemm_rows;
  options.aux_layers = shape.aux;
  const auto folder = interchange::ModelDirectory::open(dir.path());
  const auto model = TargetModel::load(folder, options);
  const auto samples = make_samples(shape.lengths, shape.model.vocab);
  std::vector<std::size_t> all(samples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});

  const auto together = run(model, samples, all);
  for (std::size_t i = 0; i < samples.size(); i += shape.step) {
    EXPECT_TRUE(run(model, samples, {i}).at(i) == together.at(i)) << "alone: sample " << i;
  }
  EXPECT_TRUE(run(model, samples, {all.rbegin(), all.rend()}) == together) << "in reverse";
  for (std::size_t seed = 0; seed < 3; seed += shape.step) {
    std::vector<std::size_t> order = all;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return base::random_u64(seed, base::Purpose::test, 1, a) < base::random_u64(seed, base::Purpose::test, 1, b);
    });
    const auto half = order.begin() + std::ssize(order) / 2;
    auto split = run(model, samples, {order.begin(), half});
    split.merge(run(model, samples, {half, order.end()}));
    EXPECT_TRUE(split == together) << "permuted and in two batches, seed " << seed;
  }
  options.streamed = true;
  EXPECT_TRUE(run(TargetModel::load(folder, options), samples, all) == together) << "streamed";
  at::set_num_threads(1);
}

std::string case_name(const testing::TestParamInfo<RowInvariance::ParamType>& info) {
  const auto& [index, rows, dtype, threads] = info.param;
  return fmt::format("{}_{}_{}_threads{}", shapes[index].name, rows, dtype == at::kFloat ? "fp32" : "bf16", threads);
}
const auto dtypes = testing::Values(at::kFloat, at::kBFloat16);
INSTANTIATE_TEST_SUITE_P(Shapes, RowInvariance,
                         testing::Combine(testing::Values(0, 1, 2, 3), testing::Values(64, 256), dtypes, testing::Values(1)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(TwoThreads, RowInvariance,
                         testing::Combine(testing::Values(1, 3), testing::Values(256), dtypes, testing::Values(2)), case_name);

// The property does not come by itself: the same states computed by plain GEMMs at each sample's own row count differ.
TEST(RowInvarianceControl, PlainGemmsDoChangeRows) {
  at::set_num_threads(1);
  const at::Tensor w = at::randn({192, 576}).t(), x = at::randn({256, 576});
  const at::Tensor whole = at::mm(x, w);
  bool changed = false;
  for (std::int64_t rows = 1; rows < 64 && !changed; ++rows)
    changed = !at::equal(at::mm(x.narrow(0, 0, rows), w), whole.narrow(0, 0, rows));
  EXPECT_TRUE(changed) << "on this machine the test above proves nothing about row blocks";
}

// Rows of the padding and of earlier, larger batches must not leak: a small batch after a large one.
TEST(RowInvarianceHistory, NothingIsLeftOver) {
  test::RandomModel shape;
  test::TempDir dir;
  shape.write(dir.path());
  TargetOptions options;
  options.gemm_rows = 64;
  const auto folder = interchange::ModelDirectory::open(dir.path());
  const auto fresh = TargetModel::load(folder, options), used = TargetModel::load(folder, options);
  const auto samples = make_samples({500, 3}, shape.vocab);
  run(used, samples, {0});
  EXPECT_TRUE(run(used, samples, {1}) == run(fresh, samples, {1}));
}

}  // namespace
}  // namespace aerie::target
