// SPDX-License-Identifier: Apache-2.0
// What a wrong folder, option or token id says.
#include <aerie/target/target_model.hpp>

#include <functional>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>

#include "random_model.hpp"
#include "temp_dir.hpp"

namespace aerie::target {
namespace {

using interchange::ModelDirectory;

/// The text of the E that `f` throws; a failure when it throws none.
template <class E>
std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

class TargetErrors : public testing::Test {
 protected:
  std::string load_error(const test::RandomModel& model, const std::string& omit = {}) {
    model.write(dir_.path(), omit);
    return text_of<base::DataError>([&] { TargetModel::load(ModelDirectory::open(dir_.path()), {}); });
  }
  test::TempDir dir_;
};

TEST_F(TargetErrors, MissingTensorIsNamed) {
  const auto text = load_error({}, "model.layers.1.mlp.up_proj.weight");
  EXPECT_NE(text.find("model.layers.1.mlp.up_proj.weight"), std::string::npos) << text;
  EXPECT_NE(text.find(dir_.path().string()), std::string::npos) << text;
}

TEST_F(TargetErrors, MissingTensorIsFoundBeforeStreaming) {
  test::RandomModel{}.write(dir_.path(), "model.layers.1.self_attn.o_proj.weight");
  TargetOptions options;
  options.streamed = true;
  EXPECT_THROW(TargetModel::load(ModelDirectory::open(dir_.path()), options), base::DataError);
}

TEST_F(TargetErrors, WrongShapeShowsBothShapes) {
  test::RandomModel model;
  model.extra = {{"intermediate_size", 128}};
  const auto text = load_error(model);
  EXPECT_NE(text.find("[96, 64]"), std::string::npos) << text;
  EXPECT_NE(text.find("[128, 64]"), std::string::npos) << text;
}

TEST_F(TargetErrors, UnsupportedModelTypeIsNamed) {
  test::RandomModel model;
  model.extra = {{"model_type", "mamba"}};
  EXPECT_NE(load_error(model).find("mamba"), std::string::npos);
}

TEST_F(TargetErrors, QuantisedWeightsAreRefused) {
  test::RandomModel model;
  model.write(dir_.path());
  const std::vector<std::byte> zeros(static_cast<std::size_t>(model.vocab * model.hidden));
  std::vector<interchange::TensorToWrite> tensors;
  std::vector<std::vector<std::byte>> values;
  const auto file = interchange::SafetensorsFile::open(dir_ / "model.safetensors");
  values.reserve(file.tensors().size());
  for (const auto& [name, info] : file.tensors()) {
    if (name == "model.embed_tokens.weight") {
      tensors.push_back({name, interchange::Dtype::f8_e4m3, info.shape, zeros});
    } else {
      tensors.push_back({name, info.dtype, info.shape, values.emplace_back(file.read(name))});
    }
  }
  interchange::write_safetensors(dir_ / "model.safetensors", tensors);
  const auto text = text_of<base::DataError>([&] { TargetModel::load(ModelDirectory::open(dir_.path()), {}); });
  EXPECT_NE(text.find("F8_E4M3"), std::string::npos) << text;
}

TEST_F(TargetErrors, TokenOutsideTheVocabularyIsLocated) {
  test::RandomModel{}.write(dir_.path());
  const auto model = TargetModel::load(ModelDirectory::open(dir_.path()), {});
  const std::vector<std::int32_t> good = {1, 2, 3}, high = {1, 64}, negative = {-1};
  for (const auto* bad : {&high, &negative}) {
    const std::vector<std::span<const std::int32_t>> batch = {good, *bad};
    const auto text = text_of<base::DataError>([&] { model.forward(batch); });
    EXPECT_NE(text.find("sample 1"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad->back())), std::string::npos) << text;
  }
  const std::vector<std::span<const std::int32_t>> batch = {good, {}};
  EXPECT_THROW(model.forward(batch), base::DataError);
  EXPECT_TRUE(model.forward({}).empty());
}

TEST_F(TargetErrors, OptionsAreChecked) {
  test::RandomModel{}.write(dir_.path());
  const auto folder = ModelDirectory::open(dir_.path());
  TargetOptions options;
  options.gemm_rows = 100;
  EXPECT_THROW(TargetModel::load(folder, options), base::ConfigError);
  options = {};
  options.aux_layers = {0, 1, 3};  // two layers: 2 is the last one's output
  EXPECT_THROW(TargetModel::load(folder, options), base::ConfigError);
  options = {};
  options.dtype = at::kDouble;
  EXPECT_THROW(TargetModel::load(folder, options), base::ConfigError);
}

TEST_F(TargetErrors, PollIsCalledBetweenLayersAndMayThrow) {
  test::RandomModel{}.write(dir_.path());
  const auto model = TargetModel::load(ModelDirectory::open(dir_.path()), {});
  const std::vector<std::int32_t> ids = {1, 2, 3};
  const std::vector<std::span<const std::int32_t>> batch = {ids};
  int calls = 0;
  model.forward(batch, [&] { ++calls; });
  EXPECT_EQ(calls, 3);  // before each of two layers and after the last
  EXPECT_THROW(model.forward(batch, [] { throw base::StopRequested("stop"); }), base::StopRequested);
}

}  // namespace
}  // namespace aerie::target
