// SPDX-License-Identifier: Apache-2.0
// Tensor names and shapes of Llama, Qwen2 and Qwen3 layers, and the two sources.
#include "layer_source.hpp"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ATen/ATen.h>

#include "weight_reader.hpp"

namespace aerie::target {
namespace {

using interchange::ModelDirectory;
using interchange::TargetConfig;

RowBlockedLinear linear(const WeightReader& reader, const std::string& prefix, const std::vector<WeightReader::Part>& parts,
                        std::int64_t columns, bool with_bias) {
  std::vector<WeightReader::Part> weights, biases;
  for (const auto& part : parts) {
    weights.push_back({prefix + part.name + ".weight", part.rows});
    biases.push_back({prefix + part.name + ".bias", part.rows});
  }
  at::Tensor weight = reader.matrix(weights, columns);
  at::Tensor bias = with_bias ? reader.vector(biases) : at::Tensor();
  return weight.defined() ? RowBlockedLinear(std::move(weight), std::move(bias)) : RowBlockedLinear();
}

LayerWeights read_layer(const WeightReader& reader, const TargetConfig& c, std::int64_t index) {
  const std::string p = fmt::format("{}layers.{}.", c.tensor_prefix, index);
  const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  LayerWeights w;
  w.input_norm = reader.norm(p + "input_layernorm.weight", c.hidden_size, c.rms_norm_eps);
  w.post_norm = reader.norm(p + "post_attention_layernorm.weight", c.hidden_size, c.rms_norm_eps);
  if (c.qk_norm) {
    w.q_norm = reader.norm(p + "self_attn.q_norm.weight", c.head_dim, c.rms_norm_eps);
    w.k_norm = reader.norm(p + "self_attn.k_norm.weight", c.head_dim, c.rms_norm_eps);
  }
  w.qkv = linear(reader, p + "self_attn.", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}, c.hidden_size, c.attention_bias);
  w.out = linear(reader, p + "self_attn.", {{"o_proj", c.hidden_size}}, q, c.attention_out_bias);
  w.gate_up = linear(reader, p + "mlp.", {{"gate_proj", c.intermediate_size}, {"up_proj", c.intermediate_size}}, c.hidden_size,
                     c.mlp_bias);
  w.down = linear(reader, p + "mlp.", {{"down_proj", c.hidden_size}}, c.intermediate_size, c.mlp_bias);
  return w;
}

at::Tensor read_embedding(const WeightReader& reader, const TargetConfig& c) {
  return reader.matrix({{c.embed_tensor, c.vocab_size}}, c.hidden_size);
}

class ResidentLayers final : public LayerSource {
 public:
  ResidentLayers(const WeightReader& reader, const TargetConfig& config)
      : embedding_(read_embedding(reader, config)),
        final_norm_(reader.norm(config.final_norm_tensor, config.hidden_size, config.rms_norm_eps)) {
    for (std::int64_t l = 0; l < config.num_layers; ++l) {
      layers_.push_back(std::make_shared<const LayerWeights>(read_layer(reader, config, l)));
    }
  }
  std::shared_ptr<const LayerWeights> layer(std::int64_t index) const override {
    return layers_.at(static_cast<std::size_t>(index));
  }
  at::Tensor embed(const at::Tensor& ids) const override { return at::index_select(embedding_, 0, ids.to(embedding_.device())); }
  const NormWeight& final_norm() const override { return final_norm_; }

 private:
  at::Tensor embedding_;
  NormWeight final_norm_;
  std::vector<std::shared_ptr<const LayerWeights>> layers_;
};

class StreamedLayers final : public LayerSource {
 public:
  StreamedLayers(const ModelDirectory& dir, const TargetConfig& config, c10::Device device, c10::ScalarType dtype)
      : dir_(dir),
        config_(config),
        device_(device),
        dtype_(dtype),
        final_norm_(reader(device).norm(config.final_norm_tensor, config.hidden_size, config.rms_norm_eps)) {}
  std::shared_ptr<const LayerWeights> layer(std::int64_t index) const override {
    return std::make_shared<const LayerWeights>(read_layer(reader(device_), config_, index));
  }
  at::Tensor embed(const at::Tensor& ids) const override {
    // The table passes through host memory only: the device needs the rows in use.
    return at::index_select(read_embedding(reader(c10::Device(c10::kCPU)), config_), 0, ids).to(device_);
  }
  const NormWeight& final_norm() const override { return final_norm_; }

 private:
  WeightReader reader(c10::Device device) const { return {dir_, device, dtype_, WeightReader::Mode::read}; }
  ModelDirectory dir_;  // shares the open shards
  TargetConfig config_;
  c10::Device device_;
  c10::ScalarType dtype_;
  NormWeight final_norm_;
};

}  // namespace

std::unique_ptr<LayerSource> make_layer_source(const ModelDirectory& dir, const TargetConfig& config, c10::Device device,
                                               c10::ScalarType dtype, bool streamed) {
  // The constructor of the resident form visits every tensor: run dry, it is the check that both forms need before they read.
  ResidentLayers(WeightReader(dir, device, dtype, WeightReader::Mode::check_only), config);
  if (streamed) return std::make_unique<StreamedLayers>(dir, config, device, dtype);
  return std::make_unique<ResidentLayers>(WeightReader(dir, device, dtype, WeightReader::Mode::read), config);
}

}  // namespace aerie::target
