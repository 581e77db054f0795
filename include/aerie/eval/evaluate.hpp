// SPDX-License-Identifier: Apache-2.0
// Acceptance of a drafter on whole conversations (docs/concepts/eagle3.md, section 5). Counts are integers, summed over ranks;
// ratios are taken once at the end, so the result does not depend on the rank count.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/draft/unroll.hpp>

namespace aerie::eval {

/// Rounds and emitted tokens of greedy chain drafting with K drafted tokens.
struct ChainCounts {
  std::int64_t rounds = 0, emitted = 0;
  double tau() const { return rounds > 0 ? static_cast<double>(emitted) / static_cast<double>(rounds) : 0.0; }
};

/// Walks each run of mask = 1 (an assistant turn): at slot t the target has given x[t+1]; the leading drafted tokens that equal
/// the text after it are accepted, up to the turn's end; each round emits accepted + 1 tokens. `draft_ids(k, t)`: token drafted
/// at slot t, step k. `turns` (optional) receives the counts of the i-th turn of the sample.
ChainCounts walk_chain(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask, std::int64_t chain,
                       const std::function<std::int64_t(std::int64_t k, std::int64_t t)>& draft_ids,
                       std::vector<ChainCounts>* turns = nullptr);

class Evaluation {
 public:
  Evaluation(std::int64_t ttt_steps, std::vector<std::int64_t> chains);
  /// Adds one sample. Local.
  void add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask, const draft::DraftChoices& choices,
           std::int64_t first_token);
  /// Sums over ranks. Collective over `world`.
  void reduce(const comm::Comm& world);
  /// slots, match, cumulative, conditional, alpha (arrays over steps), tau, simulated_length, by_turn, by_position.
  base::Json to_json() const;
  double tau(std::int64_t chain) const;

 private:
  std::vector<std::int64_t> flat() const;
  void from_flat(std::span<const std::int64_t> v);
  static constexpr std::int64_t max_turns = 8, position_buckets = 12;  // turns 0..6 and later; positions by powers of two
  std::int64_t steps_;
  std::vector<std::int64_t> chains_;
  std::int64_t samples_ = 0, tokens_ = 0;
  // chain_slots_: slots with loss at all steps 0..k, what cumulative_k is a share of; a turn's first slots miss step 0.
  std::vector<std::int64_t> slots_, chain_slots_, matches_, cumulative_, overlap_;  // overlap x 2^20
  std::vector<ChainCounts> chain_;                                                  // per chain
  std::vector<ChainCounts> turn_chain_;                                             // first chain, per turn
  std::vector<std::int64_t> position_slots_, position_matches_;                     // step 0
};

}  // namespace aerie::eval
