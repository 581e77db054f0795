// SPDX-License-Identifier: Apache-2.0
// Order, packs and their distribution. No generator and no loader state: see the header.
#include <aerie/dataset/packs.hpp>

#include <algorithm>
#include <deque>
#include <numeric>

#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

namespace aerie::dataset {
namespace {
constexpr std::size_t look_back = 64;
constexpr std::size_t cached_epochs = 2;
}  // namespace

std::vector<std::int64_t> sample_order(std::span<const std::int64_t> usable, std::uint64_t seed, std::int64_t epoch) {
  base::expect(epoch >= 0, "epoch is not negative");
  // Sorting by a random key per sample; the sample breaks ties, so that equal keys cannot depend on the sort.
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed;
  keyed.reserve(usable.size());
  for (const auto s : usable)
    keyed.emplace_back(
        base::random_u64(seed, base::Purpose::sample_order, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(s)), s);
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& [key, s] : keyed) order.push_back(s);
  return order;
}

std::vector<Pack> make_packs(std::span<const std::int64_t> order, std::span<const std::int64_t> lengths,
                             std::int64_t pack_tokens) {
  base::expect(pack_tokens > 0, "pack_tokens is positive");
  std::vector<Pack> packs;
  std::deque<std::size_t> open;  // oldest first; a pack is open until it is full or 64 newer ones are open
  for (const auto s : order) {
    base::expect(s >= 0 && s < static_cast<std::int64_t>(lengths.size()), "the order names samples that have a length");
    const auto length = lengths[static_cast<std::size_t>(s)];
    base::expect(length > 0, "usable samples have tokens");
    const auto fits =
        std::find_if(open.begin(), open.end(), [&](std::size_t p) { return packs[p].n_tokens + length <= pack_tokens; });
    if (fits != open.end()) {
      Pack& pack = packs[*fits];
      pack.samples.push_back(s);
      pack.n_tokens += length;
      if (pack.n_tokens == pack_tokens) open.erase(fits);
      continue;
    }
    packs.push_back({{s}, length});
    if (length >= pack_tokens) continue;
    if (open.size() == look_back) open.pop_front();
    open.push_back(packs.size() - 1);
  }
  return packs;
}

PackList::PackList(std::vector<std::int64_t> usable, std::vector<std::int64_t> lengths, std::uint64_t seed,
                   std::int64_t pack_tokens)
    : usable_(std::move(usable)), lengths_(std::move(lengths)), seed_(seed), pack_tokens_(pack_tokens) {
  if (usable_.empty())
    throw base::DataError("no sample is usable for training", "aerie status RUN lists what was rejected and why");
}

const std::vector<Pack>& PackList::epoch_packs(std::int64_t epoch) {
  for (const auto& [e, packs] : cache_)
    if (e == epoch) return packs;
  auto packs = make_packs(sample_order(usable_, seed_, epoch), lengths_, pack_tokens_);
  if (epoch + 1 == static_cast<std::int64_t>(begins_.size()))
    begins_.push_back(begins_.back() + static_cast<std::int64_t>(packs.size()));
  if (cache_.size() == cached_epochs) cache_.erase(cache_.begin());
  return cache_.emplace_back(epoch, std::move(packs)).second;
}

std::int64_t PackList::epoch_begin(std::int64_t epoch) {
  base::expect(epoch >= 0, "epoch is not negative");
  // The number of packs of an epoch is known only once it is made, so all epochs before are made in turn.
  while (static_cast<std::int64_t>(begins_.size()) <= epoch) epoch_packs(static_cast<std::int64_t>(begins_.size()) - 1);
  return begins_[static_cast<std::size_t>(epoch)];
}
std::int64_t PackList::packs_in_epoch(std::int64_t epoch) { return epoch_begin(epoch + 1) - epoch_begin(epoch); }

const Pack& PackList::at(std::int64_t index) {
  base::expect(index >= 0, "a pack's index is not negative");
  while (begins_.back() <= index) epoch_begin(static_cast<std::int64_t>(begins_.size()));
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto epoch = static_cast<std::int64_t>(next - begins_.begin()) - 1;
  return epoch_packs(epoch)[static_cast<std::size_t>(index - begins_[static_cast<std::size_t>(epoch)])];
}

std::vector<std::vector<std::size_t>> deal_packs(std::span<const std::int64_t> costs, int ranks) {
  base::expect(ranks > 0, "there is at least one rank");
  std::vector<std::size_t> by_cost(costs.size());
  std::iota(by_cost.begin(), by_cost.end(), std::size_t{0});
  std::stable_sort(by_cost.begin(), by_cost.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> load(dealt.size(), 0);
  for (const auto p : by_cost) {
    // Equal loads: the rank with fewer packs, so that packs of cost 0 spread too; then the lower rank.
    std::size_t best = 0;
    for (std::size_t r = 1; r < dealt.size(); ++r)
      if (std::pair(load[r], dealt[r].size()) < std::pair(load[best], dealt[best].size())) best = r;
    dealt[best].push_back(p);
    load[best] += costs[p];
  }
  for (auto& mine : dealt) std::sort(mine.begin(), mine.end());
  return dealt;
}

}  // namespace aerie::dataset
