// SPDX-License-Identifier: Apache-2.0
// What aerie needs to know of a target's config.json, with the defaults and precedences of transformers 5.24
// (both published and re-saved key names). Used by the target's forward pass, `aerie init` and the exporter.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/interchange/model_dir.hpp>

namespace aerie::interchange {

struct RopeConfig {
  std::string type = "default";  // default | linear | llama3 | yarn
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;            // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                        // yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn
  bool truncate = true;                                            // yarn
  std::int64_t original_max_position_embeddings = 0;               // llama3, yarn
};
/// Inverse frequencies g_i (fp32, dim/2 of them) and the factor A on cos and sin. Computed in fp32 as transformers does.
struct RopeTable {
  std::vector<float> inverse_frequency;
  float scale = 1.0F;
};
RopeTable rope_table(const RopeConfig& rope, std::int64_t dim, std::int64_t max_position_embeddings);

struct TargetConfig {
  std::string model_type;  // llama | qwen2 | qwen3
  std::int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  bool attention_bias = false;      // q, k, v
  bool attention_out_bias = false;  // o
  bool mlp_bias = false;
  bool qk_norm = false;        // qwen3
  std::string tensor_prefix;   // "model."
  std::string lm_head_tensor;  // name that the output head is read from; the embedding's when tied
  std::string embed_tensor, final_norm_tensor;
  std::string torch_dtype;
  std::vector<std::int64_t> bos_token_ids, eos_token_ids;
  std::string hidden_act = "silu";
};
/// Throws DataError naming file and key; an unknown model_type names the supported ones.
TargetConfig read_target_config(const ModelDirectory& dir);

/// EAGLE-3's default layers [2, N/2, N-3], input-of-layer convention. Throws ConfigError when N < 6 gives no three distinct ones.
std::array<std::int32_t, 3> default_aux_layers(std::int64_t num_layers);

}  // namespace aerie::interchange
