// SPDX-License-Identifier: Apache-2.0
// config.json of Llama, Qwen2 and Qwen3 targets. What would change the forward pass and is not supported is refused, never
// ignored; what the files hold (output head, biases, dtypes) is asked of the files, not of the config.
#include <aerie/interchange/target_config.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>

#include <fmt/format.h>

#include "config_reader.hpp"
#include "rope_config.hpp"

namespace aerie::interchange {
namespace {
using base::DataError;
using base::Json;

constexpr const char* supported = "supported: llama, qwen2, qwen3";

void read_sizes(const ConfigReader& config, TargetConfig& t) {
  const bool llama = t.model_type == "llama";
  t.hidden_size = config.size("hidden_size");
  t.intermediate_size = config.size("intermediate_size");
  t.num_layers = config.size("num_hidden_layers");
  t.num_heads = config.size("num_attention_heads");
  // Left out: as many as heads for Llama, 32 for Qwen; null: as many as heads for all three.
  t.num_kv_heads = config.size("num_key_value_heads", llama || config.has("num_key_value_heads") ? t.num_heads : 32);
  t.head_dim = config.size("head_dim", t.model_type == "qwen3" ? 128 : t.hidden_size / t.num_heads);
  t.vocab_size = config.size("vocab_size");
  t.max_position_embeddings = config.size("max_position_embeddings", llama ? 2048 : 32768);
  t.rms_norm_eps = config.number("rms_norm_eps").value_or(1e-6);
  if (!(t.rms_norm_eps >= 0.0)) throw config.bad("rms_norm_eps", "is negative");
  if (t.num_heads % t.num_kv_heads != 0)
    throw config.bad("num_key_value_heads",
                     fmt::format("({}) does not divide num_attention_heads ({})", t.num_kv_heads, t.num_heads));
  if (t.model_type != "qwen3" && !config.find("head_dim") && t.hidden_size % t.num_heads != 0)
    throw config.bad("num_attention_heads", fmt::format("({}) does not divide hidden_size ({})", t.num_heads, t.hidden_size));
  if (t.head_dim % 2 != 0) throw config.bad("head_dim", fmt::format("({}) is odd", t.head_dim));
}

void refuse_unsupported(const ConfigReader& config) {
  if (config.boolean("use_sliding_window").value_or(false))
    throw config.bad("use_sliding_window", "is true; sliding windows are not supported", "released Qwen models have it false");
  if (const auto* types = config.find("layer_types")) {
    if (!types->is_array()) throw config.bad("layer_types", "is not a list");
    for (const auto& type : *types)
      if (type != "full_attention")
        throw config.bad("layer_types", fmt::format("holds {}; only \"full_attention\" is supported", type.dump()));
  }
  const auto act = config.text("hidden_act").value_or("silu");
  if (act != "silu") throw config.bad("hidden_act", fmt::format("is '{}'; only 'silu' is supported", act));
}

void read_flags(const ConfigReader& config, TargetConfig& t) {
  const bool bias = config.boolean("attention_bias").value_or(false);
  if (t.model_type == "qwen2") {  // has biases on q, k, v whatever the config says
    t.attention_bias = true;
  } else {
    t.attention_bias = t.attention_out_bias = bias;
  }
  t.mlp_bias = t.model_type == "llama" && config.boolean("mlp_bias").value_or(false);
  t.qk_norm = t.model_type == "qwen3";
  t.bos_token_ids = config.ids("bos_token_id");
  t.eos_token_ids = config.ids("eos_token_id");
  if (t.model_type == "llama") {
    if (!config.has("bos_token_id")) t.bos_token_ids = {1};
    if (!config.has("eos_token_id")) t.eos_token_ids = {2};
  }
}

void require_shape(const ModelDirectory& dir, const std::string& tensor, const std::vector<std::int64_t>& shape) {
  if (dir.info(tensor).shape != shape)
    throw DataError(fmt::format("{}: tensor '{}' is {}, config.json implies {}", dir.path().string(), tensor,
                                Json(dir.info(tensor).shape).dump(), Json(shape).dump()));
}

std::string torch_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::f16:
      return "float16";
    case Dtype::f32:
      return "float32";
    case Dtype::f64:
      return "float64";
    default:
      return {};
  }
}

void find_tensors(const ModelDirectory& dir, const ConfigReader& config, TargetConfig& t) {
  // A bare transformer, saved without its head, has no prefix.
  t.tensor_prefix = !dir.contains("model.embed_tokens.weight") && dir.contains("embed_tokens.weight") ? "" : "model.";
  t.embed_tensor = t.tensor_prefix + "embed_tokens.weight";
  t.final_norm_tensor = t.tensor_prefix + "norm.weight";
  require_shape(dir, t.embed_tensor, {t.vocab_size, t.hidden_size});
  require_shape(dir, t.final_norm_tensor, {t.hidden_size});

  // The tie flag does not decide: transformers loads a head that is in the files even when the flag is true.
  if (dir.contains("lm_head.weight")) {
    t.lm_head_tensor = "lm_head.weight";
    require_shape(dir, t.lm_head_tensor, {t.vocab_size, t.hidden_size});
  } else {
    t.lm_head_tensor = t.embed_tensor;
    if (config.find("tie_word_embeddings") && !*config.boolean("tie_word_embeddings"))
      base::log_warning(
          fmt::format("{}: no lm_head.weight although tie_word_embeddings is false; the embedding is used as output head",
                      dir.path().string()));
  }
  t.torch_dtype = torch_name(dir.info(t.embed_tensor).dtype);
  if (t.torch_dtype.empty()) t.torch_dtype = config.text("torch_dtype").value_or(config.text("dtype").value_or(""));

  // Tensors that this architecture does not read, but that another one would: computing without them would be silently wrong.
  // (A directory with the head's tensors alone is enough for training, and is accepted.)
  const std::string layer = t.tensor_prefix + "layers.0.";
  if (!dir.contains(layer + "self_attn.q_proj.weight")) return;
  const std::pair<const char*, bool> optional[] = {{"self_attn.q_proj.bias", t.attention_bias},
                                                   {"self_attn.o_proj.bias", t.attention_out_bias},
                                                   {"self_attn.q_norm.weight", t.qk_norm},
                                                   {"mlp.gate_proj.bias", t.mlp_bias}};
  for (const auto& [name, expected] : optional)
    if (dir.contains(layer + name) != expected)
      throw DataError(
          fmt::format("{}: tensor '{}' is {} the files, but config.json (model_type {}) {}", dir.path().string(), layer + name,
                      expected ? "not in" : "in", t.model_type, expected ? "needs it" : "has no use for it"),
          "config.json and the weights belong to different models");
}
}  // namespace

TargetConfig read_target_config(const ModelDirectory& dir) {
  const ConfigReader config(dir.config(), (dir.path() / "config.json").string());
  TargetConfig t;
  const auto type = config.text("model_type");
  if (!type) throw config.bad("model_type", "is missing", supported);
  t.model_type = *type;
  if (t.model_type != "llama" && t.model_type != "qwen2" && t.model_type != "qwen3")
    throw config.bad("model_type", fmt::format("'{}' is not supported", t.model_type), supported);
  read_sizes(config, t);
  refuse_unsupported(config);
  read_flags(config, t);
  t.rope = read_rope(dir.config(), t.max_position_embeddings, config.origin());
  find_tensors(dir, config, t);
  return t;
}

std::array<std::int32_t, 3> default_aux_layers(std::int64_t num_layers) {
  const auto n = static_cast<std::int32_t>(num_layers);
  const std::array<std::int32_t, 3> layers{2, n / 2, n - 3};
  if (!(layers[0] < layers[1] && layers[1] < layers[2]))
    throw base::ConfigError(fmt::format("a target with {} layers has no three distinct default layers [2, N/2, N-3]", num_layers),
                            "choose the captured layers yourself (extract.layers)");
  return layers;
}

}  // namespace aerie::interchange
