// SPDX-License-Identifier: Apache-2.0
// The teacher's distributions at the tokens that some slot predicts from, made once per token and used by up to K steps. The full
// vocabulary is walked in chunks; only p over the draft vocabulary is kept.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include <aerie/draft/unroll.hpp>

namespace aerie::draft {

struct Teacher {
  at::Tensor argmax;    // i64 [P]: over the full vocabulary, target ids, ties by lower id
  at::Tensor in_vocab;  // bool [P]: argmax is in the draft vocabulary
  at::Tensor p;         // [P, Vd], compute dtype (op type for fp32 and fp64): softmax over the draft vocabulary
  at::Tensor mass;      // [P], op type: share of the full softmax that lies in the draft vocabulary
};

/// `states` [P, Ht] after the final norm; `head` [V, Ht]; `draft_ids` i64 [Vd] ascending; `t2d` bool [V] on the states' device.
Teacher make_teacher(const at::Tensor& states, const at::Tensor& head, const at::Tensor& draft_ids, const at::Tensor& t2d,
                     std::int64_t chunk_slots, std::int64_t chunk_vocab);

}  // namespace aerie::draft
