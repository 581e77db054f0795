// SPDX-License-Identifier: Apache-2.0
// RoPE settings in config.json. Published files have rope_theta and rope_scaling; files saved by transformers 5 have
// rope_parameters.
#include "rope_config.hpp"

#include <fmt/format.h>

#include "config_reader.hpp"

namespace aerie::interchange {
namespace {
using base::Json;

/// The dictionary that counts: a rope_scaling that says something replaces rope_parameters entirely.
const Json* choose(const ConfigReader& config, const char*& key) {
  for (const char* candidate : {"rope_scaling", "rope_parameters"}) {
    key = candidate;
    const auto* v = config.find(candidate);
    if (!v) continue;
    if (!v->is_object()) throw config.bad(candidate, "is not an object");
    if (!v->empty()) return v;
  }
  return nullptr;
}

/// Settings nested per layer type can be followed only when all layers are of one type.
const Json& unnest(const ConfigReader& config, const Json& dict, const char* key) {
  bool nested = false;
  for (const auto& [name, value] : dict.items()) {
    if (!value.is_object() && !name.ends_with("_attention")) continue;
    if (name != "full_attention" || !value.is_object())
      throw config.bad(key, fmt::format("has settings of its own for layer type '{}'", name),
                       "only models whose layers are all full_attention are supported");
    nested = true;
  }
  return nested ? dict.at("full_attention") : dict;
}

double positive(const ConfigReader& reader, const char* key) {
  const auto v = reader.number(key);
  if (!v) throw reader.bad(key, "is missing");
  if (!(*v > 0.0)) throw reader.bad(key, "is not above 0");
  return *v;
}

/// Python's truth of a JSON value, for keys whose absence, null and zero mean different things to transformers.
bool truthy(const Json& v) {
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number()) return v.get<double>() != 0.0;
  return !v.is_null() && !v.empty();
}
}  // namespace

RopeConfig read_rope(const Json& config_json, std::int64_t max_position_embeddings, const std::string& origin) {
  const ConfigReader config(config_json, origin);
  if (const auto part = config.number("partial_rotary_factor"); part && *part != 1.0)
    throw config.bad("partial_rotary_factor", "other than 1 is not supported");

  RopeConfig rope;
  if (const auto theta = config.number("rope_theta")) rope.theta = *theta;
  const char* key = "";
  const Json* chosen = choose(config, key);
  if (chosen) {
    const ConfigReader dict(unnest(config, *chosen, key), origin + ": " + key);
    if (const auto part = dict.number("partial_rotary_factor"); part && *part != 1.0)
      throw dict.bad("partial_rotary_factor", "other than 1 is not supported");
    if (const auto theta = dict.number("rope_theta")) rope.theta = *theta;
    rope.type = dict.text("rope_type").value_or(dict.text("type").value_or("default"));

    if (rope.type == "llama3" || rope.type == "yarn") {
      auto original = dict.integer("original_max_position_embeddings");
      if (const auto top = config.integer("original_max_position_embeddings")) original = top;
      rope.original_max_position_embeddings = original.value_or(max_position_embeddings);
      if (rope.original_max_position_embeddings < 1) throw dict.bad("original_max_position_embeddings", "is below 1");
    }
    if (rope.type == "linear") {
      rope.factor = positive(dict, "factor");
    } else if (rope.type == "llama3") {
      rope.factor = positive(dict, "factor");
      rope.low_freq_factor = positive(dict, "low_freq_factor");
      rope.high_freq_factor = positive(dict, "high_freq_factor");
      if (rope.low_freq_factor == rope.high_freq_factor) throw dict.bad("high_freq_factor", "equals low_freq_factor");
    } else if (rope.type == "yarn") {
      // null, and only an explicit null, asks for the ratio of the two lengths
      if (dict.has("factor") && !dict.find("factor"))
        rope.factor = static_cast<double>(max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings);
      else
        rope.factor = positive(dict, "factor");
      if (const auto v = dict.number("beta_fast").value_or(0.0); v != 0.0) rope.beta_fast = v;
      if (const auto v = dict.number("beta_slow").value_or(0.0); v != 0.0) rope.beta_slow = v;
      rope.attention_factor = dict.number("attention_factor");
      rope.mscale = dict.number("mscale");
      rope.mscale_all_dim = dict.number("mscale_all_dim");
      if (dict.has("truncate")) rope.truncate = truthy(dict.json().at("truncate"));
    } else if (rope.type != "default") {
      throw config.bad(key, fmt::format("asks for RoPE type '{}', which is not supported", rope.type),
                       "supported: default, linear, llama3, yarn");
    }
  }
  if (!(rope.theta > 1.0)) throw config.bad("rope_theta", "is not above 1");
  return rope;
}

Json rope_scaling_json(const RopeConfig& rope) {
  if (rope.type == "default") return nullptr;
  Json out = {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.type == "llama3") {
    out["low_freq_factor"] = rope.low_freq_factor;
    out["high_freq_factor"] = rope.high_freq_factor;
  } else if (rope.type == "yarn") {
    out["beta_fast"] = rope.beta_fast;
    out["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) out["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) out["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) out["mscale_all_dim"] = *rope.mscale_all_dim;
    if (!rope.truncate) out["truncate"] = false;
  }
  if (rope.type != "linear") out["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  return out;
}

}  // namespace aerie::interchange
