// SPDX-License-Identifier: Apache-2.0
// Writes a model folder with random weights of any shape: for properties that need no reference values.
#pragma once
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <aerie/base/file.hpp>
#include <aerie/base/json.hpp>
#include <aerie/base/philox.hpp>
#include <aerie/interchange/safetensors.hpp>

namespace aerie::test {

struct RandomModel {
  std::string model_type = "llama";
  std::int64_t hidden = 64, inner = 96, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, vocab = 64;
  base::Json extra = base::Json::object();  // merged into config.json

  base::Json config() const {
    base::Json c = {{"model_type", model_type},
                    {"hidden_size", hidden},
                    {"intermediate_size", inner},
                    {"num_hidden_layers", layers},
                    {"num_attention_heads", heads},
                    {"num_key_value_heads", kv_heads},
                    {"head_dim", head_dim},
                    {"vocab_size", vocab},
                    {"max_position_embeddings", 2048},
                    {"rms_norm_eps", 1e-5},
                    {"rope_theta", 10000.0},
                    {"hidden_act", "silu"},
                    {"tie_word_embeddings", true},
                    {"torch_dtype", "float32"},
                    {"bos_token_id", 1},
                    {"eos_token_id", 2}};
    if (extra.is_object()) c.update(extra);
    return c;
  }

  /// Leaves out the tensor called `omit`.
  void write(const std::filesystem::path& dir, const std::string& omit = {}) const {
    base::publish_text(dir / "config.json", config().dump(1), false);
    std::vector<interchange::TensorToWrite> tensors;
    std::vector<std::vector<float>> values;
    values.reserve(static_cast<std::size_t>(layers) * 16 + 2);  // spans below point into it
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      if (name == omit) return;
      std::size_t n = 1;
      for (const auto s : shape) n *= static_cast<std::size_t>(s);
      const float scale = shape.size() == 1 ? 0.2F : 1.0F / std::sqrt(static_cast<float>(shape[1]));
      auto& v = values.emplace_back(n);
      const auto stream = static_cast<std::uint32_t>(values.size());
      for (std::size_t i = 0; i < n; i += 4) {
        const auto bits = base::philox4x32({static_cast<std::uint32_t>(i), stream, 0, 0}, {7, 0});
        for (std::size_t j = 0; j < 4 && i + j < n; ++j) {
          const float u = static_cast<float>(bits[j] >> 8) * 0x1p-24F;                // uniform in [0, 1)
          v[i + j] = (shape.size() == 1 ? 1.0F : 0.0F) + (u - 0.5F) * 3.46F * scale;  // of that standard deviation
        }
      }
      tensors.push_back({name, interchange::Dtype::f32, std::move(shape), std::as_bytes(std::span(v))});
    };
    add("model.embed_tokens.weight", {vocab, hidden});
    for (std::int64_t l = 0; l < layers; ++l) {
      const std::string p = "model.layers." + std::to_string(l) + ".";
      add(p + "input_layernorm.weight", {hidden});
      add(p + "post_attention_layernorm.weight", {hidden});
      if (model_type == "qwen3") {
        add(p + "self_attn.q_norm.weight", {head_dim});
        add(p + "self_attn.k_norm.weight", {head_dim});
      }
      const std::pair<const char*, std::int64_t> qkv[] = {{"q", heads}, {"k", kv_heads}, {"v", kv_heads}};
      for (const auto& [name, count] : qkv) {
        add(p + "self_attn." + name + "_proj.weight", {count * head_dim, hidden});
        if (model_type == "qwen2") add(p + "self_attn." + name + "_proj.bias", {count * head_dim});
      }
      add(p + "self_attn.o_proj.weight", {hidden, heads * head_dim});
      add(p + "mlp.gate_proj.weight", {inner, hidden});
      add(p + "mlp.up_proj.weight", {inner, hidden});
      add(p + "mlp.down_proj.weight", {hidden, inner});
    }
    add("model.norm.weight", {hidden});
    interchange::write_safetensors(dir / "model.safetensors", tensors);
  }
};

}  // namespace aerie::test
