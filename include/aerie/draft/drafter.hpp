// SPDX-License-Identifier: Apache-2.0
// The EAGLE-3 draft layer: weights as one flat vector in the order of interchange::drafter_tensors, and the frozen tensors it
// shares with the target (embedding, output head).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/interchange/drafter_layout.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/interchange/vocab_map.hpp>

namespace aerie::draft {

using interchange::DrafterShape;

/// Views into a flat vector, named as in docs/concepts/eagle3.md. All share one dtype and device.
struct DrafterWeights {
  at::Tensor fc;                       // [H, 3Ht]
  at::Tensor input_norm, hidden_norm;  // [H]
  at::Tensor q, k, v, o;               // [heads*hd, 2H], [kv*hd, 2H] x 2, [H, heads*hd]
  at::Tensor post_norm;                // [H]
  at::Tensor gate, up, down;           // [I, H], [I, H], [H, I]
  at::Tensor norm;                     // [H]
  at::Tensor lm_head;                  // [Vd, H]
};

/// Number of trained values.
std::int64_t parameter_count(const DrafterShape& shape);
/// Views of `flat` (1-D, parameter_count values). No copy.
DrafterWeights view_weights(const DrafterShape& shape, const at::Tensor& flat);

/// fp32 on CPU, a function of (shape, seed) alone: matrices N(0, 1/fan_in) scaled as documented, norms 1; lm_head rows taken from
/// the target's head (`target_head` [V, Ht], when H == Ht; else random).
at::Tensor initial_weights(const DrafterShape& shape, std::uint64_t seed, const at::Tensor& target_head,
                           const interchange::VocabMap& vocab);

/// Frozen tensors of the target that training and evaluation need, on the compute device.
struct TargetHead {
  at::Tensor embedding;   // [V, H_embed], compute dtype
  at::Tensor lm_head;     // [V, Ht], compute dtype
  at::Tensor final_norm;  // [Ht] (used when a store holds pre-norm states)
  double final_norm_eps = 0;
};
TargetHead load_target_head(const interchange::ModelDirectory& dir, const interchange::TargetConfig& config, c10::Device device,
                            c10::ScalarType dtype);

/// The shape that a target and the [draft] section imply.
DrafterShape default_shape(const interchange::TargetConfig& target);

}  // namespace aerie::draft
