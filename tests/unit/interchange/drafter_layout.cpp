// SPDX-License-Identifier: Apache-2.0
// Exported drafter directories: tensors, layer ids of each engine, verification, and reading them back.
#include <aerie/interchange/drafter_layout.hpp>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {
using base::Json;
using test::TempDir;
namespace fs = std::filesystem;
constexpr ExportFormat all_formats[] = {ExportFormat::sglang, ExportFormat::vllm, ExportFormat::speculators};

/// No two sizes are equal, so that a swapped one shows.
DrafterShape small_shape() {
  DrafterShape s;
  s.target_hidden_size = 10;
  s.hidden_size = 12;
  s.intermediate_size = 14;
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.head_dim = 6;
  s.vocab_size = 9;
  s.draft_vocab_size = 5;
  s.max_position_embeddings = 640;
  s.rms_norm_eps = 1e-5;
  s.rope.type = "yarn";
  s.rope.theta = 50000.0;
  s.rope.factor = 4.0;
  s.rope.mscale = 0.5;
  s.rope.original_max_position_embeddings = 160;
  return s;
}

struct Fixture {
  ExportRequest request;
  VocabMap vocab = select_vocab(std::vector<std::int64_t>{9, 0, 8, 7, 0, 1, 2, 0, 0}, 5);
  test::TensorSet weights;
  Fixture() {
    request.shape = small_shape();
    request.aux_layers = {3, 11, 40};  // not the default
    request.target_num_layers = 61;
    request.target_name = "org/target";
    request.bos_token_ids = {1};
    request.eos_token_ids = {2, 3};
    request.provenance = {{"version", "x"}};
    char fill = 1;
    for (const auto& t : drafter_tensors(request.shape)) {
      std::string bytes;
      for (std::int64_t i = 0; i < 2 * t.elements(); ++i) bytes += static_cast<char>(fill + i);
      ++fill;
      weights.add(t.name, Dtype::bf16, t.shape, bytes);
    }
  }
  void write(const fs::path& dir, ExportFormat format) const { write_export(dir, format, request, weights.list(), vocab); }
};

TEST(Drafter, TensorsInCanonicalOrder) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> found;
  for (const auto& t : drafter_tensors(small_shape())) found.emplace_back(t.name, t.shape);
  const decltype(found) expected{{"fc.weight", {12, 30}},
                                 {"midlayer.input_layernorm.weight", {12}},
                                 {"midlayer.hidden_norm.weight", {12}},
                                 {"midlayer.self_attn.q_proj.weight", {24, 24}},
                                 {"midlayer.self_attn.k_proj.weight", {12, 24}},
                                 {"midlayer.self_attn.v_proj.weight", {12, 24}},
                                 {"midlayer.self_attn.o_proj.weight", {12, 24}},
                                 {"midlayer.post_attention_layernorm.weight", {12}},
                                 {"midlayer.mlp.gate_proj.weight", {14, 12}},
                                 {"midlayer.mlp.up_proj.weight", {14, 12}},
                                 {"midlayer.mlp.down_proj.weight", {12, 14}},
                                 {"norm.weight", {12}},
                                 {"lm_head.weight", {5, 12}}};
  EXPECT_EQ(found, expected);
}

TEST(Drafter, LayerIdsOfKimi) {
  Fixture f;
  f.request.aux_layers = default_aux_layers(61);
  const auto sglang = export_config(ExportFormat::sglang, f.request);
  EXPECT_EQ(sglang["eagle_config"]["eagle_aux_hidden_state_layer_ids"], Json({1, 29, 57}));
  EXPECT_FALSE(sglang.contains("eagle_aux_hidden_state_layer_ids"));
  const auto vllm = export_config(ExportFormat::vllm, f.request);
  EXPECT_EQ(vllm["eagle_config"]["eagle_aux_hidden_state_layer_ids"], Json({2, 30, 58}));
  EXPECT_EQ(vllm["eagle_aux_hidden_state_layer_ids"], Json({2, 30, 58}));
  EXPECT_EQ(export_config(ExportFormat::speculators, f.request)["eagle_aux_hidden_state_layer_ids"], Json({2, 30, 58}));
}

TEST(Drafter, LlamaStyleConfig) {
  const Fixture f;
  const Json common = Json::parse(
      R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 12, "intermediate_size": 14,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "mscale": 0.5,
    "original_max_position_embeddings": 160}, "max_position_embeddings": 640, "vocab_size": 9, "draft_vocab_size": 5,
    "target_hidden_size": 10,
    "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "aerie": {"version": "x"}})");
  Json sglang = common, vllm = common;
  sglang["eagle_config"] = Json::parse(R"({"eagle_aux_hidden_state_layer_ids": [2, 10, 39], "use_aux_hidden_state": true})");
  vllm["eagle_config"] = Json::parse(R"({"eagle_aux_hidden_state_layer_ids": [3, 11, 40], "use_aux_hidden_state": true})");
  vllm["eagle_aux_hidden_state_layer_ids"] = Json::parse("[3, 11, 40]");
  EXPECT_EQ(export_config(ExportFormat::sglang, f.request), sglang);
  EXPECT_EQ(export_config(ExportFormat::vllm, f.request), vllm);

  ExportRequest plain = f.request;
  plain.shape.rope = {};
  plain.bos_token_ids.clear();
  plain.provenance = nullptr;
  const auto config = export_config(ExportFormat::vllm, plain);
  EXPECT_TRUE(config.at("rope_scaling").is_null());
  EXPECT_EQ(config.at("rope_theta"), 10000.0);
  EXPECT_TRUE(config.at("bos_token_id").is_null());
  EXPECT_FALSE(config.contains("aerie"));
  plain.shape.rope.type = "linear";
  plain.shape.rope.factor = 2.0;
  EXPECT_EQ(export_config(ExportFormat::vllm, plain).at("rope_scaling"),
            Json::parse(R"({"rope_type": "linear", "factor": 2.0})"));
  plain.shape.rope.type = "llama3";
  plain.shape.rope.original_max_position_embeddings = 8;
  EXPECT_EQ(export_config(ExportFormat::vllm, plain).at("rope_scaling"),
            Json::parse(
                R"({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8})"));
}

TEST(Drafter, SpeculatorsConfig) {
  const auto config = export_config(ExportFormat::speculators, Fixture().request);
  EXPECT_EQ(config.at("speculators_model_type"), "eagle3");
  ASSERT_TRUE(config.contains("norm_before_residual"));
  EXPECT_EQ(config["norm_before_residual"], false);
  EXPECT_EQ(config.at("draft_vocab_size"), 5);
  EXPECT_EQ(config.at("target_hidden_size"), 10);
  EXPECT_EQ(config.at("speculators_config").at("proposal_methods").at(0).at("speculative_tokens"), 7);
  EXPECT_EQ(config.at("speculators_config").at("verifier").at("name_or_path"), "org/target");
  EXPECT_EQ(config.at("transformer_layer_config").at("model_type"), "llama");
  EXPECT_EQ(config.at("transformer_layer_config").at("vocab_size"), 9);
  EXPECT_EQ(config.at("transformer_layer_config").at("hidden_size"), 12);
}

TEST(Drafter, LayersThatNoEngineCanServe) {
  Fixture f;
  f.request.aux_layers = {0, 5, 9};  // the embedding has no "output of layer" id
  EXPECT_THROW(export_config(ExportFormat::sglang, f.request), base::ConfigError);
  EXPECT_NO_THROW(export_config(ExportFormat::vllm, f.request));
  for (const std::array<std::int32_t, 3>& bad :
       {std::array{5, 5, 9}, std::array{9, 5, 2}, std::array{-1, 5, 9}, std::array{1, 5, 62}}) {
    f.request.aux_layers = bad;
    for (const auto format : all_formats) EXPECT_THROW(export_config(format, f.request), base::ConfigError);
  }
}

TEST(Drafter, FilesHoldExactlyTheList) {
  const Fixture f;
  const TempDir tmp;
  for (const auto format : all_formats) {
    const auto dir = tmp / std::string(format_name(format));
    f.write(dir, format);
    const auto file = SafetensorsFile::open(dir / "model.safetensors");
    EXPECT_EQ(file.tensors().size(), 15U);
    const std::string layer = format == ExportFormat::speculators ? "layers.0." : "midlayer.";
    EXPECT_EQ(file.info(layer + "self_attn.k_proj.weight").shape, (std::vector<std::int64_t>{12, 24}));
    EXPECT_EQ(file.info("fc.weight").dtype, Dtype::bf16);
    EXPECT_EQ(file.info("d2t").dtype, Dtype::i64);
    EXPECT_EQ(file.info("d2t").shape, std::vector<std::int64_t>{5});
    EXPECT_EQ(file.info("t2d").dtype, Dtype::boolean);
    EXPECT_EQ(file.info("t2d").shape, std::vector<std::int64_t>{9});
    EXPECT_FALSE(fs::exists(dir.string() + ".tmp"));
  }
}

TEST(Drafter, ReadsBackWhatItWrote) {
  Fixture f;
  const TempDir tmp;
  for (const bool embedding : {false, true}) {
    const std::string embed(9 * 10 * 2, 'e');
    if (embedding) f.request.embedding = test::as_bytes(embed);
    for (const auto format : all_formats) {
      f.write(tmp / "d", format);
      const auto back = read_drafter(tmp / "d", format);
      EXPECT_EQ(SafetensorsFile::open(tmp / "d" / "model.safetensors").contains("embed_tokens.weight"), embedding);
      EXPECT_EQ(back.aux_layers, f.request.aux_layers);
      EXPECT_EQ(back.vocab.d2t, f.vocab.d2t);
      EXPECT_EQ(back.vocab.t2d, f.vocab.t2d);
      // A shape is equal when it exports to the same configuration.
      auto request = f.request;
      request.shape = back.shape;
      EXPECT_EQ(export_config(format, request), export_config(format, f.request));
      const auto list = f.weights.list();
      ASSERT_EQ(back.tensors.size(), list.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(back.dtypes[i], Dtype::bf16);
        EXPECT_TRUE(std::equal(back.tensors[i].begin(), back.tensors[i].end(), list[i].bytes.begin(), list[i].bytes.end()))
            << list[i].name;
      }
    }
  }
}

TEST(Drafter, ReplacesAnOlderExportButNothingElse) {
  Fixture f;
  const TempDir tmp;
  fs::create_directories(tmp / "d");  // empty is fine
  f.write(tmp / "d", ExportFormat::sglang);
  fs::create_directories(tmp / "d.tmp" / "left");  // by a crash
  f.write(tmp.path() / "d/", ExportFormat::vllm);
  EXPECT_EQ(read_drafter(tmp / "d", ExportFormat::vllm).aux_layers, f.request.aux_layers);
  EXPECT_EQ(std::distance(fs::directory_iterator(tmp.path()), fs::directory_iterator()), 1);

  test::write_file(tmp / "d" / "thesis.tex", "precious");
  try {
    f.write(tmp / "d", ExportFormat::sglang);
    ADD_FAILURE();
  } catch (const base::RefusedError& e) {
    EXPECT_NE(std::string(e.what()).find("thesis.tex"), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(tmp / "d" / "thesis.tex"));
  EXPECT_EQ(read_drafter(tmp / "d", ExportFormat::vllm).aux_layers, f.request.aux_layers);
}

TEST(Drafter, RefusesWrongWeights) {
  const Fixture f;
  const TempDir tmp;
  const auto attempt = [&](const std::vector<TensorToWrite>& list) {
    write_export(tmp / "d", ExportFormat::sglang, f.request, list, f.vocab);
  };
  auto list = f.weights.list();
  std::swap(list[4], list[5]);  // k and v: same shape, other name
  EXPECT_THROW(attempt(list), base::Bug);
  list = f.weights.list();
  list[0].dtype = Dtype::f16;
  EXPECT_THROW(attempt(list), base::Bug);
  list.pop_back();
  EXPECT_THROW(attempt(list), base::Bug);
  auto vocab = f.vocab;
  vocab.d2t[4] += 100;
  EXPECT_THROW(write_export(tmp / "d", ExportFormat::sglang, f.request, f.weights.list(), vocab), base::DataError);
  EXPECT_TRUE(fs::is_empty(tmp.path()));
}

/// Writes an export, changes its config, and returns the refusal.
std::string refusal(ExportFormat written, ExportFormat read_as, const Json& patch) {
  const TempDir tmp;
  Fixture().write(tmp / "d", written);
  auto config = base::read_json(tmp / "d" / "config.json");
  config.merge_patch(patch);
  test::write_file(tmp / "d" / "config.json", config.dump());
  try {
    read_drafter(tmp / "d", read_as);
  } catch (const base::DataError& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "accepted";
}
#define EXPECT_SAYS(message, word) EXPECT_NE((message).find(word), std::string::npos) << (message)

TEST(Drafter, RefusesOtherFormatsAndNetworks) {
  using enum ExportFormat;
  EXPECT_EQ(refusal(sglang, sglang, Json::object()), "accepted");
  EXPECT_SAYS(refusal(vllm, sglang, Json::object()), "vllm");  // would be off by one
  EXPECT_SAYS(refusal(speculators, vllm, Json::object()), "speculators");
  EXPECT_SAYS(refusal(vllm, speculators, Json::object()), "speculators_model_type");
  EXPECT_SAYS(refusal(sglang, sglang, {{"norm_before_residual", true}}), "norm_before_residual");
  EXPECT_SAYS(refusal(speculators, speculators, {{"norm_before_residual", true}}), "norm_before_residual");
  EXPECT_SAYS(refusal(speculators, speculators, {{"norm_before_residual", nullptr}}), "left out");
  EXPECT_SAYS(refusal(vllm, vllm, {{"norm_before_fc", true}}), "norm_before_fc");
  EXPECT_SAYS(refusal(sglang, sglang, {{"eagle_config", {{"norm_output", true}}}}), "norm_output");
  EXPECT_SAYS(refusal(sglang, sglang, {{"eagle_config", {{"use_aux_hidden_state", false}}}}), "use_aux_hidden_state");
  EXPECT_SAYS(refusal(sglang, sglang, {{"num_hidden_layers", 2}}), "num_hidden_layers");
  EXPECT_SAYS(refusal(sglang, sglang, {{"hidden_act", "gelu"}}), "hidden_act");
  EXPECT_SAYS(refusal(sglang, sglang, {{"head_dim", 8}}), "q_proj");
  EXPECT_SAYS(refusal(sglang, sglang, {{"hidden_size", 4'000'000'000'000}}), "hidden_size");
  EXPECT_SAYS(refusal(vllm, vllm, {{"eagle_aux_hidden_state_layer_ids", {3, 11, 41}}}), "differs");
  EXPECT_SAYS(refusal(sglang, sglang, {{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {3, 2, 41}}}}}), "rising");
  EXPECT_SAYS(refusal(sglang, sglang, {{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {3, 11}}}}}), "2 ids");
}

TEST(Drafter, ReadsLayoutsOfOthers) {
  // As other trainers publish them: no target_hidden_size, no ids, layers.0. names, fp16, no t2d.
  const TempDir tmp;
  const Fixture f;
  auto config = export_config(ExportFormat::sglang, f.request);
  for (const char* key : {"target_hidden_size", "eagle_config", "aerie"}) config.erase(key);
  fs::create_directories(tmp / "d");
  test::write_file(tmp / "d" / "config.json", config.dump());
  auto list = f.weights.list();
  for (auto& t : list) {
    t.dtype = Dtype::f16;
    if (t.name.starts_with("midlayer.")) t.name = "layers.0." + t.name.substr(9);
  }
  list.push_back({"d2t", Dtype::i64, {5}, std::as_bytes(std::span(f.vocab.d2t))});
  write_safetensors(tmp / "d" / "model.safetensors", list);
  const auto back = read_drafter(tmp / "d", ExportFormat::sglang);
  EXPECT_EQ(back.shape.target_hidden_size, 10);
  EXPECT_EQ(back.aux_layers, (std::array<std::int32_t, 3>{-1, -1, -1}));
  EXPECT_EQ(back.vocab.t2d, f.vocab.t2d);
  EXPECT_EQ(back.dtypes[3], Dtype::f16);

  const auto refused = [&](const std::vector<TensorToWrite>& tensors) {
    write_safetensors(tmp / "d" / "model.safetensors", tensors);
    try {
      read_drafter(tmp / "d", ExportFormat::sglang);
    } catch (const base::DataError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  auto more = list;
  more.push_back({"fc_norm.weight", Dtype::f16, {0}, {}});
  EXPECT_SAYS(refused(more), "fc_norm.weight");
  auto less = list;
  less.pop_back();
  EXPECT_SAYS(refused(less), "no d2t");
  less = list;
  less.erase(less.begin() + 2);
  EXPECT_SAYS(refused(less), "hidden_norm");
  std::vector<std::int64_t> absolute;
  for (std::int64_t i = 0; i < f.vocab.draft_size(); ++i) absolute.push_back(f.vocab.target_id(i));
  auto other = list;
  other.back().bytes = std::as_bytes(std::span(absolute));
  EXPECT_SAYS(refused(other), "absolute");
}

}  // namespace
}  // namespace aerie::interchange
