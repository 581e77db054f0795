// SPDX-License-Identifier: Apache-2.0
// A drafter's config.json in the three formats. The same layer has three spellings: SGLang's ids mean "output of layer" and stand
// in eagle_config alone; vLLM's mean "input of layer", at top level (what it reads) and in eagle_config; speculators' as vLLM's,
// at top level.
#include "drafter_config.hpp"

#include <aerie/base/error.hpp>

#include <fmt/format.h>

#include "config_reader.hpp"
#include "rope_config.hpp"

namespace aerie::interchange {
namespace {
using base::ConfigError;
using base::Json;

constexpr const char* ids_key = "eagle_aux_hidden_state_layer_ids";

Json id_or_list(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

/// The keys that a LlamaConfig has, in published spelling.
Json layer_config(const ExportRequest& r) {
  const auto& s = r.shape;
  return {{"model_type", "llama"},
          {"hidden_size", s.hidden_size},
          {"intermediate_size", s.intermediate_size},
          {"num_hidden_layers", 1},
          {"num_attention_heads", s.num_heads},
          {"num_key_value_heads", s.num_kv_heads},
          {"head_dim", s.head_dim},
          {"hidden_act", "silu"},
          {"rms_norm_eps", s.rms_norm_eps},
          {"rope_theta", s.rope.theta},
          {"rope_scaling", rope_scaling_json(s.rope)},
          {"max_position_embeddings", s.max_position_embeddings},
          {"vocab_size", s.vocab_size},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", false},
          {"torch_dtype", r.torch_dtype},
          {"bos_token_id", id_or_list(r.bos_token_ids)},
          {"eos_token_id", id_or_list(r.eos_token_ids)}};
}

void check_layers(ExportFormat format, const ExportRequest& r) {
  const auto& l = r.aux_layers;
  if (!(0 <= l[0] && l[0] < l[1] && l[1] < l[2] && l[2] <= r.target_num_layers))
    throw ConfigError(
        fmt::format("captured layers [{}, {}, {}] are not three rising ones in 0..{}", l[0], l[1], l[2], r.target_num_layers));
  if (format == ExportFormat::sglang && l[0] == 0)
    throw ConfigError("layer 0 (the embedding) can't be written for SGLang: its ids name the output of a layer",
                      "export for vLLM, or train with other layers");
}

/// ids of one object, if it has them; converted by `shift`.
bool read_ids(const ConfigReader& config, std::int32_t shift, std::array<std::int32_t, 3>& out) {
  const auto* v = config.find(ids_key);
  if (!v) return false;
  const auto ids = config.ids(ids_key);
  if (ids.size() != 3) throw config.bad(ids_key, fmt::format("holds {} ids, not 3", ids.size()));
  for (std::size_t i = 0; i < 3; ++i) {
    if (ids[i] < 0 || ids[i] > 100'000 || (i > 0 && ids[i] <= ids[i - 1]))
      throw config.bad(ids_key, v->dump() + " are not rising layer ids");
    out[i] = static_cast<std::int32_t>(ids[i]) + shift;
  }
  return true;
}

void read_layers(const ConfigReader& config, ExportFormat format, std::array<std::int32_t, 3>& out) {
  std::array<std::int32_t, 3> inner{};
  const auto* eagle_json = config.find("eagle_config");
  bool has_inner = false;
  if (eagle_json) {
    const ConfigReader eagle(*eagle_json, config.origin() + ": eagle_config");
    if (!eagle.boolean("use_aux_hidden_state").value_or(true))
      throw eagle.bad("use_aux_hidden_state", "is false: this is no EAGLE-3 drafter");
    has_inner = read_ids(eagle, format == ExportFormat::sglang ? 1 : 0, inner);
  }
  if (format == ExportFormat::sglang) {
    if (config.find(ids_key))
      throw config.bad(ids_key, "stands at top level, where SGLang does not look: the ids are vLLM's",
                       "read the directory as vllm");
    if (has_inner) out = inner;
    return;
  }
  const bool has_outer = read_ids(config, 0, out);
  if (has_outer && has_inner && inner != out) throw config.bad(ids_key, "differs between top level and eagle_config");
  if (!has_outer && has_inner) out = inner;
}

/// Switches that other trainers have and that change the network.
void refuse_other_networks(const ConfigReader& config) {
  for (const char* key : {"norm_before_residual", "norm_before_fc", "norm_output", "attention_bias", "mlp_bias"})
    if (config.boolean(key).value_or(false)) throw config.bad(key, "is true: this drafter computes another network than aerie's");
}
}  // namespace

std::string_view format_name(ExportFormat format) {
  switch (format) {
    case ExportFormat::sglang:
      return "sglang";
    case ExportFormat::vllm:
      return "vllm";
    case ExportFormat::speculators:
      return "speculators";
  }
  throw base::Bug("format_name: not a format");
}

Json export_config(ExportFormat format, const ExportRequest& r) {
  check_layers(format, r);
  Json out;
  if (format == ExportFormat::speculators) {
    out = {{"architectures", {"Eagle3Speculator"}},
           {"speculators_model_type", "eagle3"},
           {"speculators_config",
            {{"algorithm", "eagle3"},
             {"default_proposal_method", "greedy"},
             {"proposal_methods", Json::array({{{"proposal_type", "greedy"},
                                                {"speculative_tokens", r.speculative_tokens},
                                                {"verifier_accept_k", 1},
                                                {"accept_tolerance", 0.0}}})},
             {"verifier", {{"name_or_path", r.target_name}, {"architectures", Json::array()}}}}},
           {"transformer_layer_config", layer_config(r)},
           {"draft_vocab_size", r.shape.draft_vocab_size},
           {"target_hidden_size", r.shape.target_hidden_size},
           {"norm_before_residual", false},  // vLLM takes true when it is left out
           {ids_key, r.aux_layers},
           {"tie_word_embeddings", false},
           {"torch_dtype", r.torch_dtype}};
  } else {
    auto ids = r.aux_layers;
    out = layer_config(r);
    out["architectures"] = {"LlamaForCausalLMEagle3"};
    out["draft_vocab_size"] = r.shape.draft_vocab_size;
    out["target_hidden_size"] = r.shape.target_hidden_size;
    if (format == ExportFormat::sglang)
      for (auto& id : ids) --id;
    else
      out[ids_key] = ids;
    out["eagle_config"] = {{ids_key, ids}, {"use_aux_hidden_state", true}};
  }
  if (!r.provenance.is_null()) out["aerie"] = r.provenance;
  return out;
}

DrafterConfig parse_drafter_config(const Json& json, ExportFormat format, const std::string& origin) {
  const ConfigReader config(json, origin);
  const bool speculators = format == ExportFormat::speculators;
  const auto* type = config.find("speculators_model_type");
  if (speculators && (!type || *type != "eagle3"))
    throw config.bad("speculators_model_type", "is not \"eagle3\"", "read it as sglang or vllm");
  if (!speculators && type)
    throw config.bad("speculators_model_type", "is there: this is a speculators directory", "read it as speculators");

  const auto* layer_json = speculators ? config.find("transformer_layer_config") : &json;
  if (!layer_json) throw config.bad("transformer_layer_config", "is missing");
  const ConfigReader layer(*layer_json, speculators ? origin + ": transformer_layer_config" : origin);
  refuse_other_networks(config);
  refuse_other_networks(layer);
  if (const auto* eagle = config.find("eagle_config")) refuse_other_networks(ConfigReader(*eagle, origin + ": eagle_config"));
  if (speculators && !config.find("norm_before_residual"))
    throw config.bad("norm_before_residual", "is left out, which vLLM reads as true and speculators as false",
                     "write it explicitly");
  if (layer.size("num_hidden_layers", 1) != 1) throw layer.bad("num_hidden_layers", "is not 1");
  if (const auto act = layer.text("hidden_act").value_or("silu"); act != "silu")
    throw layer.bad("hidden_act", "is '" + act + "', not 'silu'");

  DrafterConfig out;
  auto& s = out.shape;
  s.hidden_size = layer.size("hidden_size");
  s.intermediate_size = layer.size("intermediate_size");
  s.num_heads = layer.size("num_attention_heads");
  s.num_kv_heads = layer.size("num_key_value_heads", s.num_heads);
  s.head_dim = layer.size("head_dim", s.hidden_size / s.num_heads);
  s.vocab_size = layer.size("vocab_size");
  s.draft_vocab_size = config.size("draft_vocab_size", s.vocab_size);
  s.max_position_embeddings = layer.size("max_position_embeddings", 2048);
  s.rms_norm_eps = layer.number("rms_norm_eps").value_or(1e-6);
  s.rope = read_rope(*layer_json, s.max_position_embeddings, layer.origin());
  s.target_hidden_size = config.find("target_hidden_size") ? config.size("target_hidden_size") : 0;
  if (s.num_heads % s.num_kv_heads != 0) throw layer.bad("num_key_value_heads", "does not divide num_attention_heads");
  if (s.draft_vocab_size > s.vocab_size) throw config.bad("draft_vocab_size", "is above vocab_size");
  read_layers(config, format, out.aux_layers);
  return out;
}

}  // namespace aerie::interchange
