// SPDX-License-Identifier: Apache-2.0
// Small model directories for tests: config.json and a few tensors.
#pragma once
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/interchange/safetensors.hpp>
#include <temp_dir.hpp>

namespace aerie::test {

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// Tensors of zeros, or of given bytes, that own what TensorToWrite borrows.
class TensorSet {
 public:
  void add(const std::string& name, interchange::Dtype dtype, std::vector<std::int64_t> shape, std::string bytes = {}) {
    std::size_t n = interchange::dtype_size(dtype);
    for (const auto d : shape) n *= static_cast<std::size_t>(d);
    if (bytes.empty()) bytes.assign(n, '\0');
    data_.push_back(std::move(bytes));
    entries_.push_back({name, dtype, std::move(shape), {}});
  }
  std::vector<interchange::TensorToWrite> list() const {
    auto out = entries_;
    for (std::size_t i = 0; i < out.size(); ++i) out[i].bytes = as_bytes(data_[i]);
    return out;
  }

 private:
  std::vector<std::string> data_;
  std::vector<interchange::TensorToWrite> entries_;
};

/// Keys of a small Llama in published spelling. hidden 32, 4 heads, vocabulary 40.
inline base::Json llama_config() {
  return {{"model_type", "llama"},    {"hidden_size", 32},        {"intermediate_size", 48}, {"num_hidden_layers", 8},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 40},        {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"hidden_act", "silu"},     {"rope_theta", 500000.0},  {"rope_scaling", nullptr},
          {"torch_dtype", "float16"}, {"bos_token_id", 3},        {"eos_token_id", {4, 5}},  {"tie_word_embeddings", false}};
}

/// Embedding, norm and, on request, an output head and more tensors.
inline void write_model(const std::filesystem::path& dir, const base::Json& config, bool head = true,
                        const std::map<std::string, std::vector<std::int64_t>>& extra = {},
                        const std::string& prefix = "model.") {
  std::filesystem::create_directories(dir);
  write_file(dir / "config.json", config.dump());
  TensorSet set;
  set.add(prefix + "embed_tokens.weight", interchange::Dtype::bf16, {40, 32});
  set.add(prefix + "norm.weight", interchange::Dtype::bf16, {32});
  if (head) set.add("lm_head.weight", interchange::Dtype::bf16, {40, 32});
  for (const auto& [name, shape] : extra) set.add(name, interchange::Dtype::bf16, shape);
  interchange::write_safetensors(dir / "model.safetensors", set.list());
}

}  // namespace aerie::test
