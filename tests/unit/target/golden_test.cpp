// SPDX-License-Identifier: Apache-2.0
// Parity with transformers (fixtures: tests/golden/target/make_golden.py). fp32, every capture index: relative L2 <= 3e-6, the
// sum of fp32 roundings over four layers measured at 4e-7 by an independent implementation. bf16: no farther from the fp32 golden
// than 1.25 times transformers' own bf16. Each kind of mistake that the tolerance must catch is made on purpose and has to fail.
#include <aerie/target/target_model.hpp>

#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <aerie/base/json.hpp>

#include "temp_dir.hpp"

namespace aerie::target {
namespace {

namespace fs = std::filesystem;
using interchange::ModelDirectory;
using interchange::SafetensorsFile;

const fs::path root = AERIE_GOLDEN_TARGET;

at::Tensor tensor(const SafetensorsFile& file, const std::string& name) {
  const auto& info = file.info(name);
  const auto type = info.dtype == interchange::Dtype::f32    ? at::kFloat
                    : info.dtype == interchange::Dtype::bf16 ? at::kBFloat16
                                                             : at::kInt;
  at::Tensor t = at::empty(info.shape, at::TensorOptions().dtype(type));
  file.read(name, {static_cast<std::byte*>(t.mutable_data_ptr()), t.nbytes()});
  return type == at::kBFloat16 ? t.to(at::kFloat) : t;
}

/// A fixture's states at its stored positions, all samples one after another.
struct Golden {
  at::Tensor residuals;            // [N + 1, rows, H], transformers' fp32
  at::Tensor last;                 // [rows, H]
  at::Tensor bf16_out, bf16_last;  // transformers' bf16: raw output of the last layer, final state
};

std::vector<std::int64_t> lengths() { return base::read_json(root / "golden.json").at("lengths"); }

Golden read_golden(const std::string& name) {
  const auto file = SafetensorsFile::open(root / name / "golden.safetensors");
  std::vector<at::Tensor> r, l, bo, bl;
  for (const auto n : lengths()) {
    r.push_back(tensor(file, fmt::format("residuals.{}", n)));
    l.push_back(tensor(file, fmt::format("last.{}", n)));
    bo.push_back(tensor(file, fmt::format("bf16.residual_out.{}", n)));
    bl.push_back(tensor(file, fmt::format("bf16.last.{}", n)));
  }
  return {at::cat(r, 1), at::cat(l), at::cat(bo), at::cat(bl)};
}

/// A model folder: the fixture's config.json with `changes` merged in, and the weights that it uses.
void make_folder(const std::string& name, const fs::path& to, const base::Json& changes = base::Json::object()) {
  auto config = base::read_json(root / name / "config.json");
  config.merge_patch(changes);
  std::ofstream(to / "config.json") << config.dump(1);
  const std::string weights = base::read_json(root / "golden.json").at("models").at(name).at("weights_of");
  fs::copy_file(root / weights / "model.safetensors", to / "model.safetensors");
}

struct States {
  at::Tensor residuals, last;  // as in Golden
};

States compute(const std::string& name, const TargetOptions& options, const base::Json& changes = base::Json::object()) {
  test::TempDir dir;
  make_folder(name, dir.path(), changes);
  const auto model = TargetModel::load(ModelDirectory::open(dir.path()), options);
  const auto file = SafetensorsFile::open(root / name / "golden.safetensors");
  std::vector<at::Tensor> r, l;
  for (const auto n : lengths()) {
    const at::Tensor ids = tensor(file, fmt::format("ids.{}", n)),
                     at_rows = tensor(file, fmt::format("positions.{}", n)).to(at::kLong);
    const auto all = model.forward_all({ids.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(n)});
    r.push_back(all.residuals.index_select(1, at_rows).to(at::kFloat));
    l.push_back(all.last.index_select(0, at_rows).to(at::kFloat));
  }
  return {at::cat(r, 1), at::cat(l)};
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).to(at::kDouble).norm() / b.to(at::kDouble).norm()).item<double>();
}

class Parity : public testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(Parity, Fp32AtEveryCapture) {
  const auto& [name, hf] = GetParam();
  TargetOptions options;
  options.hf_numerics = hf;
  const Golden golden = read_golden(name);
  const States got = compute(name, options);
  ASSERT_EQ(got.residuals.sizes(), golden.residuals.sizes());
  EXPECT_EQ(relative(got.residuals[0], golden.residuals[0]), 0.0) << "the embedding is a copy";
  double sum = 0;
  for (std::int64_t l = 0; l < golden.residuals.size(0); ++l) {
    const double d = relative(got.residuals[l], golden.residuals[l]);
    EXPECT_LE(d, 3e-6) << "input of layer " << l;
    sum += d;
  }
  const double last = relative(got.last, golden.last);
  EXPECT_LE(last, 3e-6);
  EXPECT_GT(sum + last, 0.0) << "two implementations cannot agree in every bit: this compares a thing with itself";
  fmt::print("{} hf {}: last residual {:.2e}, final state {:.2e}\n", name, hf, relative(got.residuals[-1], golden.residuals[-1]),
             last);
}

TEST_P(Parity, Bf16NoWorseThanTransformers) {
  const auto& [name, hf] = GetParam();
  TargetOptions options;
  options.hf_numerics = hf;
  options.dtype = at::kBFloat16;
  const Golden golden = read_golden(name);
  const States got = compute(name, options);
  const auto record = base::read_json(root / "golden.json").at("models").at(name);
  const std::vector<double> own = record.at("bf16_distance_residuals");
  for (std::int64_t l = 0; l < golden.residuals.size(0); ++l) {
    EXPECT_LE(relative(got.residuals[l], golden.residuals[l]), 1.25 * own[static_cast<std::size_t>(l)]) << "input of layer " << l;
  }
  EXPECT_LE(relative(got.last, golden.last), 1.25 * record.at("bf16_distance_last").get<double>());
  // With transformers' rounding points only values whose fp32 sums straddle a rounding boundary differ: less than one bf16 step.
  EXPECT_LE(relative(got.residuals[-1], golden.bf16_out), hf ? 0x1p-8 : 2e-2);
  EXPECT_LE(relative(got.last, golden.bf16_last), 2e-2);
  fmt::print("{} hf {}: bf16 to fp32 {:.2e} (transformers' own {:.2e}), to its bf16 {:.2e}\n", name, hf,
             relative(got.residuals[-1], golden.residuals[-1]), own.back(), relative(got.residuals[-1], golden.bf16_out));
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         testing::Combine(testing::Values("llama", "llama_eps", "qwen2", "qwen3"), testing::Bool()),
                         [](const auto& item) { return std::get<0>(item.param) + (std::get<1>(item.param) ? "_hf" : "_fused"); });

// forward() is what extraction calls: the same rows as forward_all, in the order of aux_layers.
TEST(Forward, CapturesTheChosenLayersInOrder) {
  test::TempDir dir;
  make_folder("qwen3", dir.path());
  TargetOptions options;
  options.aux_layers = {4, 1, 2};
  const auto model = TargetModel::load(ModelDirectory::open(dir.path()), options);
  const auto file = SafetensorsFile::open(root / "qwen3" / "golden.safetensors");
  std::vector<at::Tensor> ids;
  std::vector<std::span<const std::int32_t>> batch;
  for (const auto n : lengths()) {
    ids.push_back(tensor(file, fmt::format("ids.{}", n)));
    batch.emplace_back(ids.back().const_data_ptr<std::int32_t>(), static_cast<std::size_t>(n));
  }
  const auto states = model.forward(batch);
  ASSERT_EQ(states.size(), batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto all = model.forward_all(batch[i]);
    EXPECT_TRUE(at::equal(states[i].aux, at::stack({all.residuals[4], all.residuals[1], all.residuals[2]}, 1)));
    EXPECT_TRUE(at::equal(states[i].last, all.last));
    EXPECT_FALSE(at::allclose(all.residuals[4], all.last)) << "index N is taken before the final norm";
  }
}

// Mistakes that must not pass.
double last_residual_error(const std::string& name, const base::Json& changes) {
  return relative(compute(name, {}, changes).residuals[-1], read_golden(name).residuals[-1]);
}
TEST(Control, WrongEpsIsSeen) { EXPECT_GT(last_residual_error("llama_eps", {{"rms_norm_eps", 1e-5}}), 1e-3); }
TEST(Control, WrongRopeTypeIsSeen) {
  EXPECT_GT(last_residual_error("llama", {{"rope_parameters", {{"rope_type", "default"}}}}), 1e-2);
  EXPECT_GT(last_residual_error("qwen2", {{"rope_parameters", {{"rope_type", "linear"}}}}), 1e-2);
}
TEST(Control, WrongThetaIsSeen) { EXPECT_GT(last_residual_error("qwen3", {{"rope_parameters", {{"rope_theta", 1e4}}}}), 1e-2); }

}  // namespace
}  // namespace aerie::target
