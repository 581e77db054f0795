// SPDX-License-Identifier: Apache-2.0
#include "model_inputs.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/dataset/token_counts.hpp>

namespace aerie::apps {

std::array<std::int32_t, 3> aux_layers(const config::Config& config, const interchange::TargetConfig& target) {
  if (config.extract.layers.empty()) return interchange::default_aux_layers(target.num_layers);
  std::array<std::int32_t, 3> out{};
  if (config.extract.layers.size() != out.size())
    throw base::ConfigError(fmt::format("extract.layers names {} layers: three are captured", config.extract.layers.size()));
  std::copy(config.extract.layers.begin(), config.extract.layers.end(), out.begin());
  for (const auto id : out)
    if (id < 0 || id > target.num_layers)
      throw base::ConfigError(fmt::format("extract.layers: {} is not in 0..{}", id, target.num_layers),
                              "ids mean the residual stream entering that layer; N is the last layer's output");
  return out;
}

interchange::DrafterShape drafter_shape(const config::Config& config, const interchange::TargetConfig& target) {
  const auto& d = config.draft;
  const auto pick = [](std::int64_t wish, std::int64_t fallback) { return wish > 0 ? wish : fallback; };
  interchange::DrafterShape s;
  s.target_hidden_size = target.hidden_size;
  s.hidden_size = pick(d.hidden_size, target.hidden_size);
  s.intermediate_size = pick(d.intermediate_size, target.intermediate_size);
  s.num_heads = pick(d.heads, target.num_heads);
  s.num_kv_heads = pick(d.kv_heads, target.num_kv_heads);
  s.head_dim = pick(d.head_dim, target.head_dim);
  s.vocab_size = target.vocab_size;
  s.draft_vocab_size = std::min(d.vocab_size, target.vocab_size);
  s.max_position_embeddings = target.max_position_embeddings;
  s.rms_norm_eps = d.rms_norm_eps > 0 ? d.rms_norm_eps : target.rms_norm_eps;
  s.rope = target.rope;
  if (d.rope_theta > 0) {
    s.rope = {};
    s.rope.theta = d.rope_theta;
  }
  if (s.hidden_size != target.hidden_size)
    throw base::ConfigError(fmt::format("draft.hidden_size = {}, but the target's is {}", s.hidden_size, target.hidden_size),
                            "the drafter shares the target's embedding, so both are the same");
  if (s.num_heads % s.num_kv_heads != 0)
    throw base::ConfigError(
        fmt::format("draft.heads = {} is not a multiple of draft.kv_heads = {}", s.num_heads, s.num_kv_heads));
  if (s.head_dim % 2 != 0)
    throw base::ConfigError(fmt::format("draft.head_dim = {} is odd: rotary embedding needs pairs", s.head_dim));
  return s;
}

io::StoreIdentity store_identity(const config::Config& config, const interchange::ModelDirectory& dir,
                                 const interchange::TargetConfig& target, const dataset::Dataset& data) {
  io::StoreIdentity id;
  id.hidden_size = target.hidden_size;
  id.max_length = config.dataset.max_length;
  id.target_num_layers = target.num_layers;
  id.vocab_size = target.vocab_size;
  id.aux_layer_ids = aux_layers(config, target);
  id.final_norm_eps = target.rms_norm_eps;
  id.final_norm_hash = dir.tensor_hash(target.final_norm_tensor);
  id.target_name = std::filesystem::weakly_canonical(dir.path()).filename().string();
  id.target_config_hash = dir.config_hash();
  id.lm_head_hash = dir.tensor_hash(target.lm_head_tensor);
  id.embed_hash = dir.tensor_hash(target.embed_tensor);
  id.tokenizer_hash = data.tokenizer_hash();
  id.dataset_hash = data.hash();
  if (config.extract.dtype == "fp8") id.dtype = io::StateDtype::fp8_e4m3;
  return id;
}

void check_store(const io::Store& store, const io::StoreIdentity& expected) {
  // Compute settings and provenance of the extraction are the store's own affair.
  auto wanted = expected;
  const auto& found = store.identity();
  wanted.row_invariant = found.row_invariant;
  wanted.gemm_rows = found.gemm_rows;
  wanted.target_name = found.target_name;
  wanted.target_revision = found.target_revision;
  wanted.target_weights_hash = found.target_weights_hash;
  wanted.producer = found.producer;
  wanted.dtype = found.dtype;
  wanted.max_length = found.max_length;
  wanted.last_hidden_norm = found.last_hidden_norm;
  const auto differences = io::Store::differences(found, wanted);
  if (!differences.empty())
    throw base::RefusedError(
        fmt::format("{} was made for something else:\n  {}", store.path().string(), fmt::join(differences, "\n  ")),
        "use the target, dataset and layers that it was made with, or another run directory");
}

void check_tokenizer(const dataset::Dataset& data, const interchange::ModelDirectory& dir, const config::Config& config) {
  if (data.tokenizer_hash().empty() || !config.dataset.chat_template.empty())
    return;  // imported without one, or another template by choice
  const auto own = dir.tokenizer_hash();
  if (own != data.tokenizer_hash())
    throw base::DataError(fmt::format("{} was prepared with another tokenizer or chat template: {} there, {} in {}",
                                      data.path().string(), data.tokenizer_hash(), own, dir.path().string()),
                          "prepare the conversations again with this target");
}

std::vector<std::int64_t> training_samples(const config::Config& config, const dataset::Dataset& data, const io::Store& store) {
  const double holdout = config.holdout();
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    if (store.state(i).kind != io::StateKind::done) continue;
    if (holdout > 0 && dataset::is_held_out(data.id(i), holdout)) continue;
    out.push_back(i);
  }
  if (out.empty())
    throw base::DataError(fmt::format("{}: no sample to train on", store.path().string()), "extract first, or hold out less");
  return out;
}

std::string samples_hash(const std::vector<std::int64_t>& samples) {
  return base::xxh3_128_tagged(std::as_bytes(std::span(samples)));
}

}  // namespace aerie::apps
