// SPDX-License-Identifier: Apache-2.0
// Sample order and packs. Everything here is a function of (lengths, usable set, seed, epoch, pack_tokens); there is no loader
// state. The position in training is one integer: the number of packs consumed.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace aerie::dataset {

/// The order of `usable` in epoch `epoch`: a counter-based permutation of (seed, epoch).
std::vector<std::int64_t> sample_order(std::span<const std::int64_t> usable, std::uint64_t seed, std::int64_t epoch);

/// Several samples trained together: document-causal attention, positions restart per sample.
struct Pack {
  std::vector<std::int64_t> samples;  // in the order they were placed
  std::int64_t n_tokens = 0;
};

/// Walks `order`, first fit into packs of at most `pack_tokens`, looking back at the newest 64 open packs; a longer sample gets a
/// pack of its own. Packs come in the order they were opened.
std::vector<Pack> make_packs(std::span<const std::int64_t> order, std::span<const std::int64_t> lengths,
                             std::int64_t pack_tokens);

/// The whole list: the epochs' lists one after another, made on demand.
class PackList {
 public:
  PackList(std::vector<std::int64_t> usable, std::vector<std::int64_t> lengths, std::uint64_t seed, std::int64_t pack_tokens);
  /// Pack `index` of the infinite list.
  const Pack& at(std::int64_t index);
  std::int64_t packs_in_epoch(std::int64_t epoch);
  /// First pack index of `epoch`.
  std::int64_t epoch_begin(std::int64_t epoch);

 private:
  const std::vector<Pack>& epoch_packs(std::int64_t epoch);
  std::vector<std::int64_t> usable_, lengths_;
  std::uint64_t seed_;
  std::int64_t pack_tokens_;
  std::vector<std::int64_t> begins_{0};                            // of epochs made so far
  std::vector<std::pair<std::int64_t, std::vector<Pack>>> cache_;  // the newest two epochs
};

/// Deals `costs.size()` packs of one step out to ranks: longest first, each to the least loaded rank. Returns, per rank, indices
/// into `costs` ascending. Any assignment gives the same result; this one is balanced.
std::vector<std::vector<std::size_t>> deal_packs(std::span<const std::int64_t> costs, int ranks);

}  // namespace aerie::dataset
