// SPDX-License-Identifier: Apache-2.0
// Counts of loss slots. The slots of step k read the mask at a range that moves by one with k, so all K counts come from one
// pass: count of a range = total of the mask minus what lies before and behind it.
#include <aerie/dataset/loss_slots.hpp>

#include <algorithm>
#include <string>

#include <aerie/base/error.hpp>

namespace aerie::dataset {

MaskAlignment mask_alignment_from_name(std::string_view name) {
  if (name == "predicted") return MaskAlignment::predicted;
  if (name == "input") return MaskAlignment::input;
  if (name == "hidden") return MaskAlignment::hidden;
  throw base::ConfigError("train.mask_alignment: '" + std::string(name) + "' is unknown", "predicted, input or hidden");
}
std::string_view mask_alignment_name(MaskAlignment a) {
  return a == MaskAlignment::predicted ? "predicted" : a == MaskAlignment::input ? "input" : "hidden";
}
Normalize normalize_from_name(std::string_view name) {
  if (name == "loss") return Normalize::loss;
  if (name == "all") return Normalize::all;
  throw base::ConfigError("train.normalize: '" + std::string(name) + "' is unknown", "loss or all");
}

std::vector<std::int64_t> loss_slot_counts(std::span<const std::uint8_t> mask, std::int64_t ttt_steps, MaskAlignment a,
                                           Normalize n) {
  base::expect(ttt_steps >= 0, "ttt_steps is not negative");
  const auto S = static_cast<std::int64_t>(mask.size());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ttt_steps), S);
  if (n == Normalize::all) return counts;

  // Step k reads m[k + first .. end), for all slots t >= 0 that exist.
  const std::int64_t first = a == MaskAlignment::predicted ? 2 : a == MaskAlignment::input ? 1 : 0;
  const std::int64_t end = std::max<std::int64_t>(0, a == MaskAlignment::hidden ? S - 1 : S);
  std::int64_t left = std::count_if(mask.begin(), mask.begin() + end, [](std::uint8_t m) { return m != 0; });
  const auto drop = [&](std::int64_t at) { left -= at < end && mask[static_cast<std::size_t>(at)] != 0; };
  for (std::int64_t at = 0; at < first; ++at) drop(at);
  for (std::int64_t k = 0; k < ttt_steps; ++k) {
    counts[static_cast<std::size_t>(k)] = left;
    drop(first + k);
  }
  return counts;
}

}  // namespace aerie::dataset
