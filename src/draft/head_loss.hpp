// SPDX-License-Identifier: Apache-2.0
// Loss of one unroll step, fused with the output head: logits are made and consumed chunk by chunk, and in training the gradient
// is written over them (w_k / n_k is known before the first forward). Not here: the choice of slots (pack_plan.hpp) and the
// coefficients (train/schedule.hpp).
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "teacher.hpp"

namespace aerie::draft {

struct HeadLossInput {
  at::Tensor y;            // [r, H]: norm(h2) at the rows with loss
  at::Tensor head;         // [Vd, H]
  at::Tensor teacher_row;  // i64 [r]: row of the teacher
  at::Tensor draft_ids;    // i64 [Vd]: target ids
  double coefficient = 0;  // w_k / n_k
  bool mask_oov = true;    // no loss where the teacher's argmax is outside the draft vocabulary
  std::int64_t chunk_slots = 1024;
};

struct HeadLossOutput {
  double loss = 0;      // sum over rows (those without loss left out) of CE(p, q), nats
  at::Tensor draft_id;  // i64 [r]: the drafter's argmax as a target id
  at::Tensor overlap;   // op type [r]: sum_v min(p_v, q_v), p not renormalised
  at::Tensor dy;        // [r, H]: gradient of coefficient * loss; undefined without `head_grad`
};

/// `head_grad` [Vd, H] in the op type is added to when defined.
HeadLossOutput head_loss(const HeadLossInput& in, const Teacher& teacher, const at::Tensor& head_grad);

}  // namespace aerie::draft
