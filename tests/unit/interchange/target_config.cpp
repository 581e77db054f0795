// SPDX-License-Identifier: Apache-2.0
// config.json as published and as re-saved, its defaults, and what must be refused.
#include <aerie/interchange/target_config.hpp>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {
using base::Json;

TargetConfig read(const Json& config, bool head = true, const std::map<std::string, std::vector<std::int64_t>>& extra = {},
                  const std::string& prefix = "model.") {
  const test::TempDir tmp;
  test::write_model(tmp.path(), config, head, extra, prefix);
  return read_target_config(ModelDirectory::open(tmp.path()));
}

Json with(Json config, const Json& changes) {
  config.update(changes);
  return config;
}
Json without(Json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.erase(key);
  return config;
}
Json qwen(const char* type) {
  return without(with(test::llama_config(), {{"model_type", type}}), {"bos_token_id", "eos_token_id", "rms_norm_eps"});
}

/// The message of the DataError that reading throws; the hint is appended.
std::string refusal(const Json& config, const std::map<std::string, std::vector<std::int64_t>>& extra = {}) {
  try {
    read(config, true, extra);
  } catch (const base::DataError& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  ADD_FAILURE() << "not refused: " << config.dump();
  return {};
}
void expect_names(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
}

TEST(TargetConfig, ReadsAPublishedLlama) {
  const auto t = read(test::llama_config());
  EXPECT_EQ(t.model_type, "llama");
  EXPECT_EQ(t.hidden_size, 32);
  EXPECT_EQ(t.intermediate_size, 48);
  EXPECT_EQ(t.num_layers, 8);
  EXPECT_EQ(t.num_heads, 4);
  EXPECT_EQ(t.num_kv_heads, 2);
  EXPECT_EQ(t.head_dim, 8);
  EXPECT_EQ(t.vocab_size, 40);
  EXPECT_EQ(t.max_position_embeddings, 512);
  EXPECT_EQ(t.rms_norm_eps, 1e-5);
  EXPECT_EQ(t.rope.type, "default");
  EXPECT_EQ(t.rope.theta, 500000.0);
  EXPECT_FALSE(t.attention_bias || t.attention_out_bias || t.mlp_bias || t.qk_norm);
  EXPECT_EQ(t.tensor_prefix, "model.");
  EXPECT_EQ(t.embed_tensor, "model.embed_tokens.weight");
  EXPECT_EQ(t.final_norm_tensor, "model.norm.weight");
  EXPECT_EQ(t.lm_head_tensor, "lm_head.weight");
  EXPECT_EQ(t.torch_dtype, "bfloat16");  // of the tensors; the config says float16
  EXPECT_EQ(t.bos_token_ids, std::vector<std::int64_t>{3});
  EXPECT_EQ(t.eos_token_ids, (std::vector<std::int64_t>{4, 5}));
}

TEST(TargetConfig, ReadsResavedKeys) {
  const auto t = read(with(without(test::llama_config(), {"rope_theta", "rope_scaling", "torch_dtype"}),
                           {{"dtype", "bfloat16"}, {"rope_parameters", {{"rope_theta", 1234.0}, {"rope_type", "default"}}}}));
  EXPECT_EQ(t.rope.theta, 1234.0);
  EXPECT_EQ(t.rope.type, "default");
}

TEST(TargetConfig, Defaults) {
  const auto llama = read(without(test::llama_config(), {"num_key_value_heads", "rms_norm_eps", "max_position_embeddings",
                                                         "rope_theta", "hidden_act", "bos_token_id", "eos_token_id"}));
  EXPECT_EQ(llama.num_kv_heads, 4);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_EQ(llama.bos_token_ids, std::vector<std::int64_t>{1});
  EXPECT_EQ(llama.eos_token_ids, std::vector<std::int64_t>{2});
  EXPECT_TRUE(read(with(test::llama_config(), {{"bos_token_id", nullptr}})).bos_token_ids.empty());
  EXPECT_EQ(read(with(test::llama_config(), {{"head_dim", nullptr}})).head_dim, 8);
  EXPECT_EQ(read(with(test::llama_config(), {{"head_dim", 16}})).head_dim, 16);

  EXPECT_EQ(read(qwen("qwen2")).head_dim, 8);
  EXPECT_EQ(read(qwen("qwen3")).head_dim, 128);
  EXPECT_EQ(read(with(qwen("qwen3"), {{"head_dim", 64}})).head_dim, 64);
  EXPECT_EQ(read(with(qwen("qwen2"), {{"num_key_value_heads", nullptr}})).num_kv_heads, 4);
  EXPECT_EQ(read(without(with(qwen("qwen3"), {{"num_attention_heads", 64}}), {"num_key_value_heads"})).num_kv_heads, 32);
  EXPECT_EQ(read(without(qwen("qwen3"), {"max_position_embeddings"})).max_position_embeddings, 32768);
  EXPECT_TRUE(read(qwen("qwen3")).eos_token_ids.empty());
}

TEST(TargetConfig, BiasesAndNorms) {
  const auto llama = read(with(test::llama_config(), {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.attention_bias && llama.attention_out_bias && llama.mlp_bias);
  const auto qwen2 = read(with(qwen("qwen2"), {{"attention_bias", false}, {"mlp_bias", true}}));
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_FALSE(qwen2.attention_out_bias || qwen2.mlp_bias || qwen2.qk_norm);
  const auto qwen3 = read(qwen("qwen3"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.attention_bias || qwen3.attention_out_bias);
  EXPECT_TRUE(read(with(qwen("qwen3"), {{"attention_bias", true}})).attention_out_bias);
}

TEST(TargetConfig, FilesDecideWhetherTheHeadIsTied) {
  EXPECT_EQ(read(with(test::llama_config(), {{"tie_word_embeddings", true}}), true).lm_head_tensor, "lm_head.weight");
  EXPECT_EQ(read(with(test::llama_config(), {{"tie_word_embeddings", true}}), false).lm_head_tensor, "model.embed_tokens.weight");
  EXPECT_EQ(read(test::llama_config(), false).lm_head_tensor, "model.embed_tokens.weight");
  EXPECT_EQ(read(without(test::llama_config(), {"tie_word_embeddings"}), false).lm_head_tensor, "model.embed_tokens.weight");
  const auto bare = read(test::llama_config(), false, {}, "");
  EXPECT_EQ(bare.tensor_prefix, "");
  EXPECT_EQ(bare.lm_head_tensor, "embed_tokens.weight");
}

TEST(TargetConfig, RopePrecedence) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  const auto rope = [](const Json& changes) { return read(with(test::llama_config(), changes)).rope; };
  // rope_scaling replaces rope_parameters entirely, its theta included
  const auto replaced =
      rope({{"rope_scaling", linear}, {"rope_parameters", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 7.0}}}});
  EXPECT_EQ(replaced.factor, 2.0);
  EXPECT_EQ(replaced.theta, 500000.0);
  EXPECT_EQ(rope({{"rope_scaling", with(linear, {{"rope_theta", 9.0}})}}).theta, 9.0);
  EXPECT_EQ(rope({{"rope_scaling", {{"type", "linear"}, {"factor", 3.0}}}}).type, "linear");
  EXPECT_EQ(rope({{"rope_scaling", {{"type", "linear"}, {"rope_type", "default"}, {"factor", 3.0}}}}).type, "default");
  // an empty dictionary says nothing
  EXPECT_EQ(rope({{"rope_scaling", Json::object()}, {"rope_parameters", with(linear, {{"rope_theta", 7.0}})}}).theta, 7.0);

  const Json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  EXPECT_EQ(rope({{"rope_scaling", llama3}}).original_max_position_embeddings, 512);
  const auto inner = with(llama3, {{"original_max_position_embeddings", 64}});
  EXPECT_EQ(rope({{"rope_scaling", inner}}).original_max_position_embeddings, 64);
  EXPECT_EQ(rope({{"rope_scaling", inner}, {"original_max_position_embeddings", 32}}).original_max_position_embeddings, 32);

  const Json yarn = {{"rope_type", "yarn"},
                     {"factor", nullptr},
                     {"original_max_position_embeddings", 128},
                     {"beta_fast", 0},
                     {"beta_slow", nullptr}};
  const auto y = rope({{"rope_scaling", yarn}});
  EXPECT_EQ(y.factor, 4.0);
  EXPECT_EQ(y.beta_fast, 32.0);
  EXPECT_EQ(y.beta_slow, 1.0);
  EXPECT_TRUE(y.truncate);
  EXPECT_FALSE(rope({{"rope_scaling", with(yarn, {{"truncate", false}})}}).truncate);
}

TEST(TargetConfig, NestedRopeOnlyForFullAttention) {
  const Json full = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 11.0}};
  const auto t = read(with(test::llama_config(),
                           {{"rope_parameters", {{"full_attention", full}}}, {"layer_types", Json::array({"full_attention"})}}));
  EXPECT_EQ(t.rope.theta, 11.0);
  EXPECT_EQ(t.rope.factor, 2.0);
  expect_names(
      refusal(with(test::llama_config(), {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", full}}}})),
      {"config.json", "rope_parameters", "sliding_attention", "full_attention"});
  expect_names(
      refusal(with(test::llama_config(), {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", nullptr}}}})),
      {"sliding_attention"});
}

TEST(TargetConfig, RefusesWhatItCannotCompute) {
  const Json c = test::llama_config();
  expect_names(refusal(with(c, {{"model_type", "gemma"}})), {"config.json", "model_type", "gemma", "llama, qwen2, qwen3"});
  expect_names(refusal(without(c, {"model_type"})), {"model_type", "missing"});
  expect_names(refusal(with(qwen("qwen2"), {{"use_sliding_window", true}})), {"use_sliding_window"});
  EXPECT_NO_THROW(read(with(qwen("qwen2"), {{"use_sliding_window", false}, {"sliding_window", 4096}, {"max_window_layers", 2}})));
  expect_names(refusal(with(qwen("qwen3"), {{"layer_types", Json::array({"full_attention", "sliding_attention"})}})),
               {"layer_types", "sliding_attention"});
  expect_names(refusal(with(c, {{"hidden_act", "gelu"}})), {"hidden_act", "gelu", "silu"});
  expect_names(refusal(with(c, {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}})),
               {"rope_scaling", "dynamic", "yarn"});
  expect_names(refusal(with(c, {{"rope_scaling", {{"rope_type", "linear"}}}})), {"rope_scaling", "factor", "missing"});
  expect_names(refusal(with(c, {{"rope_scaling", {{"rope_type", "yarn"}}}})), {"factor", "missing"});
  expect_names(refusal(with(c, {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}}})), {"low_freq_factor"});
  expect_names(refusal(with(c, {{"rope_scaling", "yarn"}})), {"rope_scaling", "object"});
  expect_names(refusal(with(c, {{"partial_rotary_factor", 0.5}})), {"partial_rotary_factor"});
  expect_names(refusal(with(c, {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}})),
               {"rope_parameters", "partial_rotary_factor"});
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    expect_names(refusal(without(c, {key})), {key, "missing"});
    expect_names(refusal(with(c, {{key, "12"}})), {key, "whole number"});
    expect_names(refusal(with(c, {{key, 0}})), {key, "below 1"});
  }
  expect_names(refusal(with(c, {{"num_key_value_heads", 3}})), {"num_key_value_heads", "divide"});
  expect_names(refusal(with(c, {{"num_attention_heads", 6}})), {"num_attention_heads", "divide"});
  expect_names(refusal(with(c, {{"head_dim", 7}})), {"head_dim", "odd"});
}

TEST(TargetConfig, RefusesFilesThatDoNotFitTheConfig) {
  const Json c = test::llama_config();
  expect_names(refusal(with(c, {{"vocab_size", 41}})), {"model.embed_tokens.weight", "[40,32]", "[41,32]"});
  const std::vector<std::int64_t> v{8};
  const std::string l = "model.layers.0.self_attn.";
  expect_names(refusal(c, {{l + "q_proj.weight", v}, {l + "q_proj.bias", v}}), {"q_proj.bias", "llama"});
  expect_names(refusal(c, {{l + "q_proj.weight", v}, {l + "q_norm.weight", v}}), {"q_norm.weight", "no use"});
  expect_names(refusal(qwen("qwen2"), {{l + "q_proj.weight", v}}), {"q_proj.bias", "needs"});
  expect_names(refusal(qwen("qwen3"), {{l + "q_proj.weight", v}}), {"q_norm.weight", "needs"});
  EXPECT_NO_THROW(read(qwen("qwen2"), true, {{l + "q_proj.weight", v}, {l + "q_proj.bias", v}}));
}

TEST(DefaultAuxLayers, OfEagle3) {
  EXPECT_EQ(default_aux_layers(61), (std::array<std::int32_t, 3>{2, 30, 58}));
  EXPECT_EQ(default_aux_layers(32), (std::array<std::int32_t, 3>{2, 16, 29}));
  EXPECT_EQ(default_aux_layers(7), (std::array<std::int32_t, 3>{2, 3, 4}));
  for (const std::int64_t n : {1, 4, 5, 6})
    EXPECT_THROW(default_aux_layers(n), base::ConfigError) << n;  // N = 6 would be 2, 3, 3
}

}  // namespace
}  // namespace aerie::interchange
