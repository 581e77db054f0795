// SPDX-License-Identifier: Apache-2.0
#include "pack_plan.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>

namespace aerie::draft {
namespace {
at::Tensor to_index(const std::vector<std::int64_t>& values, c10::Device device) {
  return at::tensor(values, at::TensorOptions(at::kLong)).to(device);
}
}  // namespace

PackPlan plan_pack(const PackBatch& pack, std::int64_t ttt_steps, dataset::MaskAlignment alignment, c10::Device device) {
  const auto K = ttt_steps;
  base::expect(pack.ids.size() == pack.mask.size(), "one mask value per token");
  base::expect(
      std::accumulate(pack.lengths.begin(), pack.lengths.end(), std::int64_t{0}) == static_cast<std::int64_t>(pack.ids.size()),
      "lengths add up to the pack's tokens");
  PackPlan plan;
  std::vector<std::int64_t> full_tokens, full_next, full_positions, active_in_full, active_tokens, active_positions;
  std::vector<std::vector<std::int64_t>> ids(static_cast<std::size_t>(K)), rows(static_cast<std::size_t>(K)),
      teacher(static_cast<std::size_t>(K));
  std::vector<std::int64_t> teacher_index(pack.ids.size(), -1), teacher_tokens;

  std::int64_t begin = 0;  // first token of the document
  for (const auto S : pack.lengths) {
    const std::span<const std::uint8_t> mask(pack.mask.data() + begin, static_cast<std::size_t>(S));
    DocumentSlots doc;
    doc.full_begin = static_cast<std::int64_t>(full_tokens.size());
    doc.active_begin = static_cast<std::int64_t>(active_tokens.size());
    std::int64_t last_active = -1;
    for (std::int64_t t = 0; t < S; ++t) {
      bool active = false;
      for (std::int64_t k = 0; k < K; ++k) {
        if (!dataset::slot_has_loss(mask, t, k, alignment)) continue;
        const auto row = static_cast<std::int64_t>(active_tokens.size());
        active = true;
        const auto target = static_cast<std::size_t>(begin + t + 1 + k);
        if (teacher_index[target] < 0) {
          teacher_index[target] = static_cast<std::int64_t>(teacher_tokens.size());
          teacher_tokens.push_back(static_cast<std::int64_t>(target));
        }
        rows[static_cast<std::size_t>(k)].push_back(row);
        teacher[static_cast<std::size_t>(k)].push_back(teacher_index[target]);
      }
      if (!active) continue;
      last_active = t;
      doc.active_position.push_back(t);
      active_tokens.push_back(begin + t);
      active_positions.push_back(t);
      active_in_full.push_back(doc.full_begin + t);
      for (std::int64_t k = 0; k < K; ++k)
        ids[static_cast<std::size_t>(k)].push_back(pack.ids[static_cast<std::size_t>(begin + std::min(t + 1 + k, S - 1))]);
    }
    for (std::int64_t t = 0; t <= last_active; ++t) {  // last_active + 1 <= S - 1: an active slot has a next token
      full_tokens.push_back(begin + t);
      full_next.push_back(pack.ids[static_cast<std::size_t>(begin + t + 1)]);
      full_positions.push_back(t);
    }
    if (last_active >= 0) {
      doc.full_count = last_active + 1;
      doc.active_count = static_cast<std::int64_t>(doc.active_position.size());
      plan.max_position = std::max(plan.max_position, last_active + K);
      plan.documents.push_back(std::move(doc));
    }
    begin += S;
  }

  plan.n_full = static_cast<std::int64_t>(full_tokens.size());
  plan.n_active = static_cast<std::int64_t>(active_tokens.size());
  plan.n_teacher = static_cast<std::int64_t>(teacher_tokens.size());
  plan.full_tokens = to_index(full_tokens, device);
  plan.full_next_ids = to_index(full_next, device);
  plan.full_positions = to_index(full_positions, device);
  plan.active_in_full = to_index(active_in_full, device);
  plan.active_tokens = to_index(active_tokens, device);
  plan.active_positions = to_index(active_positions, device);
  plan.teacher_tokens = to_index(teacher_tokens, device);
  for (std::size_t k = 0; k < static_cast<std::size_t>(K); ++k) {
    plan.active_ids.push_back(to_index(ids[k], device));
    plan.steps.push_back({to_index(rows[k], device), to_index(teacher[k], device), static_cast<std::int64_t>(rows[k].size())});
  }
  return plan;
}

}  // namespace aerie::draft
