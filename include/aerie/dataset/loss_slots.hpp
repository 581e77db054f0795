// SPDX-License-Identifier: Apache-2.0
// Which slots carry loss at which unroll step (docs/concepts/eagle3.md, section 3). Notation: slot t, step k, S tokens, m the
// loss mask.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace aerie::dataset {

/// predicted: m[t+2+k] (needs t+2+k <= S-1); input: m[t+1+k]; hidden: m[t+k] (both need t+1+k <= S-1).
enum class MaskAlignment { predicted, input, hidden };
MaskAlignment mask_alignment_from_name(std::string_view name);  // throws ConfigError
std::string_view mask_alignment_name(MaskAlignment a);

/// What the loss of step k is divided by: `loss` = slots with loss; `all` = all positions S of every sample (for parity with
/// EAGLE and SpecForge).
enum class Normalize { loss, all };
Normalize normalize_from_name(std::string_view name);  // throws ConfigError

/// True when slot (t, k) exists and has loss.
inline bool slot_has_loss(std::span<const std::uint8_t> mask, std::int64_t t, std::int64_t k, MaskAlignment a) {
  const auto S = static_cast<std::int64_t>(mask.size());
  const std::int64_t at = t + k + (a == MaskAlignment::predicted ? 2 : a == MaskAlignment::input ? 1 : 0);
  const std::int64_t last = a == MaskAlignment::predicted ? t + 2 + k : t + 1 + k;
  return last <= S - 1 && mask[static_cast<std::size_t>(at)] != 0;
}

/// n_k contributions of one sample: K counts.
std::vector<std::int64_t> loss_slot_counts(std::span<const std::uint8_t> mask, std::int64_t ttt_steps, MaskAlignment a,
                                           Normalize n);

}  // namespace aerie::dataset
