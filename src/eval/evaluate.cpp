// SPDX-License-Identifier: Apache-2.0
#include <aerie/eval/evaluate.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/dataset/loss_slots.hpp>

namespace aerie::eval {

ChainCounts walk_chain(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask, std::int64_t chain,
                       const std::function<std::int64_t(std::int64_t, std::int64_t)>& draft_ids,
                       std::vector<ChainCounts>* turns) {
  ChainCounts all;
  const auto S = static_cast<std::int64_t>(ids.size());
  for (std::int64_t a = 0; a < S;) {
    if (mask[static_cast<std::size_t>(a)] == 0) {
      ++a;
      continue;
    }
    std::int64_t b = a;  // the turn is [a, b)
    while (b < S && mask[static_cast<std::size_t>(b)] != 0) ++b;
    ChainCounts turn;
    for (std::int64_t t = std::max<std::int64_t>(0, a - 1); t + 2 < b;) {
      std::int64_t accepted = 0;
      while (accepted < chain && t + 2 + accepted < b &&
             draft_ids(accepted, t) == ids[static_cast<std::size_t>(t + 2 + accepted)])
        ++accepted;
      ++turn.rounds;
      turn.emitted += accepted + 1;
      t += accepted + 1;
    }
    all.rounds += turn.rounds;
    all.emitted += turn.emitted;
    if (turns) turns->push_back(turn);
    a = b;
  }
  return all;
}

Evaluation::Evaluation(std::int64_t ttt_steps, std::vector<std::int64_t> chains) : steps_(ttt_steps), chains_(std::move(chains)) {
  const auto k = static_cast<std::size_t>(steps_);
  for (auto* v : {&slots_, &chain_slots_, &matches_, &cumulative_, &overlap_}) v->assign(k, 0);
  chain_.resize(chains_.size());
  turn_chain_.resize(max_turns);
  position_slots_.assign(position_buckets, 0);
  position_matches_.assign(position_buckets, 0);
}

void Evaluation::add(std::span<const std::int32_t> ids, std::span<const std::uint8_t> mask, const draft::DraftChoices& choices,
                     std::int64_t first_token) {
  const auto S = static_cast<std::int64_t>(ids.size());
  const auto drafted = choices.draft_ids.accessor<std::int64_t, 2>();
  const auto taught = choices.teacher_ids.accessor<std::int64_t, 2>();
  const auto overlap = choices.overlap.accessor<double, 2>();
  ++samples_;
  tokens_ += S;
  for (std::int64_t t = 0; t < S; ++t) {
    bool alive = true;     // matched at every step so far
    bool unbroken = true;  // has loss at every step so far
    for (std::int64_t k = 0; k < steps_; ++k) {
      if (!dataset::slot_has_loss(mask, t, k, dataset::MaskAlignment::predicted)) {
        alive = unbroken = false;
        continue;
      }
      const auto i = static_cast<std::size_t>(k);
      const bool match = drafted[k][first_token + t] == taught[k][first_token + t];
      alive = alive && match;
      slots_[i] += 1;
      chain_slots_[i] += unbroken ? 1 : 0;
      matches_[i] += match ? 1 : 0;
      cumulative_[i] += alive ? 1 : 0;
      overlap_[i] += std::llrint(overlap[k][first_token + t] * 1048576.0);
      if (k == 0) {
        const auto bucket = static_cast<std::size_t>(
            std::min<std::int64_t>(position_buckets - 1, std::bit_width(static_cast<std::uint64_t>(t) / 32)));
        position_slots_[bucket] += 1;
        position_matches_[bucket] += match ? 1 : 0;
      }
    }
  }
  const auto choice = [&](std::int64_t k, std::int64_t t) { return drafted[k][first_token + t]; };
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    std::vector<ChainCounts> turns;
    const auto counts = walk_chain(ids, mask, std::min(chains_[c], steps_), choice, &turns);
    chain_[c].rounds += counts.rounds;
    chain_[c].emitted += counts.emitted;
    if (c != 0) continue;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      auto& turn = turn_chain_[std::min(i, turn_chain_.size() - 1)];
      turn.rounds += turns[i].rounds;
      turn.emitted += turns[i].emitted;
    }
  }
}

std::vector<std::int64_t> Evaluation::flat() const {
  std::vector<std::int64_t> v{samples_, tokens_};
  for (const auto* part : {&slots_, &chain_slots_, &matches_, &cumulative_, &overlap_, &position_slots_, &position_matches_})
    v.insert(v.end(), part->begin(), part->end());
  for (const auto* part : {&chain_, &turn_chain_})
    for (const auto& c : *part) {
      v.push_back(c.rounds);
      v.push_back(c.emitted);
    }
  return v;
}

void Evaluation::from_flat(std::span<const std::int64_t> v) {
  std::size_t at = 0;
  samples_ = v[at++];
  tokens_ = v[at++];
  for (auto* part : {&slots_, &chain_slots_, &matches_, &cumulative_, &overlap_, &position_slots_, &position_matches_})
    for (auto& x : *part) x = v[at++];
  for (auto* part : {&chain_, &turn_chain_})
    for (auto& c : *part) {
      c.rounds = v[at++];
      c.emitted = v[at++];
    }
}

void Evaluation::reduce(const comm::Comm& world) {
  auto v = flat();
  world.sum(std::span(v));  // collective over world
  from_flat(v);
}

double Evaluation::tau(std::int64_t chain) const {
  for (std::size_t c = 0; c < chains_.size(); ++c)
    if (chains_[c] == chain) return chain_[c].tau();
  return 0;
}

base::Json Evaluation::to_json() const {
  const auto ratio = [](std::int64_t a, std::int64_t b) { return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0; };
  base::Json match = base::Json::array(), cumulative = match, conditional = match, alpha = match;
  double length = 0;
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    match.push_back(ratio(matches_[k], slots_[k]));
    cumulative.push_back(ratio(cumulative_[k], chain_slots_[k]));
    // cumulative_k / cumulative_{k-1}, both as shares of the slots that have loss up to there.
    conditional.push_back(k == 0                                ? cumulative[0].get<double>()
                          : cumulative[k - 1].get<double>() > 0 ? cumulative[k].get<double>() / cumulative[k - 1].get<double>()
                                                                : 0.0);
    alpha.push_back(slots_[k] > 0 ? static_cast<double>(overlap_[k]) / 1048576.0 / static_cast<double>(slots_[k]) : 0.0);
  }
  double product = 1;
  for (const auto& m : match) length += product *= m.get<double>();
  base::Json tau = base::Json::object(), chain = base::Json::object();
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    tau[std::to_string(chains_[c])] = chain_[c].tau();
    chain[std::to_string(chains_[c])] = {{"rounds", chain_[c].rounds}, {"emitted", chain_[c].emitted}};
  }
  base::Json by_turn = base::Json::array(), by_position = base::Json::array();
  for (std::size_t i = 0; i < turn_chain_.size(); ++i)
    if (turn_chain_[i].rounds > 0)
      by_turn.push_back(
          {{"turn", i}, {"rounds", turn_chain_[i].rounds}, {"emitted", turn_chain_[i].emitted}, {"tau", turn_chain_[i].tau()}});
  for (std::size_t i = 0; i < position_slots_.size(); ++i)
    if (position_slots_[i] > 0)
      by_position.push_back({{"from", i == 0 ? 0 : 32 << (i - 1)},
                             {"slots", position_slots_[i]},
                             {"match", ratio(position_matches_[i], position_slots_[i])}});
  return {{"samples", samples_},      {"tokens", tokens_},
          {"slots", slots_},          {"match", match},
          {"cumulative", cumulative}, {"conditional", conditional},
          {"alpha", alpha},           {"tau", tau},
          {"chain", chain},           {"simulated_length", {{"sum_of_products", length}, {"one_plus", 1 + length}}},
          {"by_turn", by_turn},       {"by_position", by_position}};
}

}  // namespace aerie::eval
