// SPDX-License-Identifier: Apache-2.0
// A drafter's shape, its tensor list, and the directories that SGLang, vLLM and speculators load.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/interchange/safetensors.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/interchange/vocab_map.hpp>

namespace aerie::interchange {

/// Shape of a classic EAGLE-3 drafter (docs/concepts/eagle3.md).
struct DrafterShape {
  std::int64_t target_hidden_size = 0;  // Ht; fc maps 3*Ht -> H
  std::int64_t hidden_size = 0, intermediate_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 0, draft_vocab_size = 0, max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
};

struct DrafterTensor {
  std::string name;  // as exported: "midlayer.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  std::int64_t elements() const;
};
/// The trained tensors in canonical order. This order is the order of the flat parameter vector, of checkpoints and of hashes:
/// fc, input_layernorm, hidden_norm, q, k, v, o, post_attention_layernorm, gate, up, down, norm, lm_head.
std::vector<DrafterTensor> drafter_tensors(const DrafterShape& shape);

enum class ExportFormat { sglang, vllm, speculators };
std::string_view format_name(ExportFormat format);

struct ExportRequest {
  DrafterShape shape;
  std::array<std::int32_t, 3> aux_layers{};  // input-of-layer convention
  std::int64_t target_num_layers = 0;
  std::string target_name;  // for speculators' verifier
  std::vector<std::int64_t> bos_token_ids, eos_token_ids;
  std::string torch_dtype = "bfloat16";
  std::int64_t speculative_tokens = 7;
  base::Json provenance;                 // written into config.json under "aerie"
  std::span<const std::byte> embedding;  // the target's [V, Ht] in torch_dtype, borrowed; empty: left out, engines share theirs
};
/// config.json of one format. SGLang's ids are output-of-layer (ours minus one), vLLM's and speculators' input-of-layer.
base::Json export_config(ExportFormat format, const ExportRequest& request);

/// Writes config.json and model.safetensors into DIR.tmp, reads them back and checks every name, shape, dtype and byte against
/// the list, then publishes by rename; an older export in DIR is replaced. `weights`: drafter_tensors(shape) in order, in
/// torch_dtype. Throws DataError when the check fails, RefusedError when DIR holds other files, ConfigError for a request no
/// engine can serve.
void write_export(const std::filesystem::path& dir, ExportFormat format, const ExportRequest& request,
                  std::span<const TensorToWrite> weights, const VocabMap& vocab);

struct ImportedDrafter {
  DrafterShape shape;
  // Converted to input-of-layer; all -1 when the directory names none (the engines then take [2, N/2, N-3] of the target).
  std::array<std::int32_t, 3> aux_layers{};
  VocabMap vocab;
  std::vector<std::vector<std::byte>> tensors;  // drafter_tensors(shape) in order
  std::vector<Dtype> dtypes;
};
/// Reads an exported directory. `format` says what its layer ids mean: the SGLang and vLLM layouts look alike, so the user has
/// to. Throws DataError for a drafter of another network (norm_before_residual, more layers, unknown tensors), naming what
/// differs.
ImportedDrafter read_drafter(const std::filesystem::path& dir, ExportFormat format);

}  // namespace aerie::interchange
