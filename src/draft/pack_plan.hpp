// SPDX-License-Identifier: Apache-2.0
// Which slots of a pack do which work. Three nested sets: all tokens; `full` slots, which need a step-0 key and value (every slot
// of a document up to its last active one); `active` slots, at which some step has loss. Inactive slots get no query, MLP, later
// step or head.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/draft/unroll.hpp>

namespace aerie::draft {

struct DocumentSlots {
  std::int64_t full_begin = 0, full_count = 0;      // rows of the full set
  std::int64_t active_begin = 0, active_count = 0;  // rows of the active set
  std::vector<std::int64_t> active_position;        // position in the document of each active slot, ascending
};

struct StepRows {
  at::Tensor rows;     // i64 [r_k]: rows of the active set that have loss at this step
  at::Tensor teacher;  // i64 [r_k]: index into teacher_tokens
  std::int64_t count = 0;
};

struct PackPlan {
  std::vector<DocumentSlots> documents;  // those with at least one active slot
  at::Tensor full_tokens;                // i64 [F]: token index in the pack
  at::Tensor full_next_ids;              // i64 [F]: id of the following token (step 0's input)
  at::Tensor full_positions;             // i64 [F]
  at::Tensor active_in_full;             // i64 [n]
  at::Tensor active_tokens;              // i64 [n]
  at::Tensor active_positions;           // i64 [n]
  std::vector<at::Tensor> active_ids;    // per step k: i64 [n], id at slot + 1 + k, clamped to the document's last token
  std::vector<StepRows> steps;           // K
  at::Tensor teacher_tokens;             // i64 [P]: tokens whose last state is needed
  std::int64_t n_full = 0, n_active = 0, n_teacher = 0, max_position = 0;
};

PackPlan plan_pack(const PackBatch& pack, std::int64_t ttt_steps, dataset::MaskAlignment alignment, c10::Device device);

}  // namespace aerie::draft
