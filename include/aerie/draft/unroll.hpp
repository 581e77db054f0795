// SPDX-License-Identifier: Apache-2.0
// Training-time test: K unrolled steps of the draft layer over one pack, the soft-target loss, and every weight's gradient, by
// explicit forward and backward (no autograd graph). Math: docs/concepts/eagle3.md; EAGLE-3 (arXiv 2503.01840).
//
// Work only where the loss is: a slot at which no step has loss is computed up to its step-0 key and value and no further.
// Holds throughout: no buffer of [slots, V]; results depend on the pack alone (not on ranks or neighbours); any floating dtype.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/dataset/loss_slots.hpp>
#include <aerie/draft/drafter.hpp>

namespace aerie::draft {

enum class Oov { mask, keep };
Oov oov_from_name(std::string_view name);  // throws ConfigError

/// One pack on the compute device. T tokens of all its samples, one after another.
struct PackBatch {
  std::vector<std::int64_t> lengths;  // of the samples; sum T
  std::vector<std::int32_t> ids;      // [T]
  std::vector<std::uint8_t> mask;     // [T]
  at::Tensor aux;                     // [T, 3Ht] compute dtype
  at::Tensor last;                    // [T, Ht] compute dtype, after the final norm
};

struct UnrollOptions {
  std::int64_t ttt_steps = 7;
  dataset::MaskAlignment alignment = dataset::MaskAlignment::predicted;
  Oov oov = Oov::mask;
  std::int64_t chunk_slots = 1024;   // slots whose logits exist at once
  std::int64_t chunk_vocab = 16384;  // teacher's vocabulary columns at once
};

/// Per step counts and sums of one pack.
struct StepSums {
  std::int64_t slots = 0;       // slots with loss by the mask alone (n_k contribution)
  std::int64_t matches = 0;     // argmax, mapped to the target's ids, equals the teacher's full-vocabulary argmax
  std::int64_t cumulative = 0;  // matches at this and all earlier steps
  double loss = 0;              // sum over slots of CE(p, q), nats, before weights
  double overlap = 0;           // sum over slots of sum_v min(p_v, q_v), p not renormalised
};

struct UnrollResult {
  std::vector<StepSums> steps;  // K
  double weighted_loss = 0;     // sum_k coefficient_k * loss_k
};

/// Forward and, when `grads` is given, backward. `coefficients[k]` = w_k / n_k (0 drops the step). `grads` are views of a zeroed
/// flat vector of the weights' shape (fp32, or fp64 when the weights are fp64); gradients are added.
UnrollResult unroll(const DrafterShape& shape, const DrafterWeights& weights, const TargetHead& target,
                    const interchange::VocabMap& vocab, const PackBatch& pack, const UnrollOptions& options,
                    std::span<const double> coefficients, DrafterWeights* grads);

/// What evaluation needs of one pack: for each sample, slot and step the drafter's choice.
struct DraftChoices {
  at::Tensor draft_ids;    // [K, T] i64, target ids; -1 where slot (t,k) does not exist
  at::Tensor teacher_ids;  // [K, T] i64, full-vocabulary argmax of the teacher; -1 likewise
  at::Tensor overlap;      // [K, T] f64, sum_v min(p, q)
};
DraftChoices draft_choices(const DrafterShape& shape, const DrafterWeights& weights, const TargetHead& target,
                           const interchange::VocabMap& vocab, const PackBatch& pack, std::int64_t ttt_steps);

}  // namespace aerie::draft
