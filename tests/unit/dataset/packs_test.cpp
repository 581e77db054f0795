// SPDX-License-Identifier: Apache-2.0
// Properties of order, packs and dealing, over random lengths; and the packing rule against a slow form that looks at all packs.
#include <aerie/dataset/packs.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

#include <gtest/gtest.h>

namespace {
using namespace aerie::dataset;
using Ints = std::vector<std::int64_t>;

std::uint64_t bits(std::uint64_t stream, std::uint64_t i) {
  return aerie::base::random_u64(11, aerie::base::Purpose::test, stream, i);
}
Ints random_lengths(std::uint64_t stream, std::size_t n, std::int64_t longest) {
  Ints out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = 1 + static_cast<std::int64_t>(bits(stream, i) % static_cast<std::uint64_t>(longest));
  return out;
}
Ints iota(std::size_t n) {
  Ints out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}
Ints flat(const std::vector<Pack>& packs) {
  Ints out;
  for (const auto& p : packs) out.insert(out.end(), p.samples.begin(), p.samples.end());
  return out;
}
Ints sorted(Ints v) {
  std::sort(v.begin(), v.end());
  return v;
}

/// The rule as the documentation says it. open_for: every pack has a flag, the look-back is found by counting from the newest.
std::vector<Pack> slow_packs(const Ints& order, const Ints& lengths, std::int64_t limit) {
  struct Slot {
    Pack pack;
    bool open;
  };
  std::vector<Slot> slots;
  for (const auto s : order) {
    const auto length = lengths.at(static_cast<std::size_t>(s));
    bool placed = false;
    for (auto& slot : slots) {  // first opened first
      if (!slot.open || slot.pack.n_tokens + length > limit) continue;
      slot.pack.samples.push_back(s);
      slot.pack.n_tokens += length;
      slot.open = slot.pack.n_tokens < limit;
      placed = true;
      break;
    }
    if (placed) continue;
    slots.push_back({{{s}, length}, length < limit});
    int open = 0;
    for (auto it = slots.rbegin(); it != slots.rend(); ++it)
      if (it->open && ++open > 64) it->open = false;
  }
  std::vector<Pack> out;
  for (auto& s : slots) out.push_back(s.pack);
  return out;
}

TEST(SampleOrder, IsAPermutationThatDependsOnSeedAndEpochAlone) {
  const Ints usable{3, 8, 1, 40, 22, 7, 100, 5, 6, 11};
  const auto a = sample_order(usable, 1, 0);
  EXPECT_EQ(sorted(a), sorted(usable));
  EXPECT_EQ(sample_order(usable, 1, 0), a);
  EXPECT_EQ(sample_order(sorted(usable), 1, 0), a);  // the order in which they are named does not matter
  EXPECT_NE(sample_order(usable, 1, 1), a);
  EXPECT_NE(sample_order(usable, 2, 0), a);
  EXPECT_NE(a, sorted(a));
  EXPECT_TRUE(sample_order({}, 1, 0).empty());
}

TEST(SampleOrder, FirstPlaceIsUniform) {
  // 4000 epochs of 8: each sample is first 500 times, standard deviation 21; 5 of them are 105.
  const auto usable = iota(8);
  Ints first(8, 0);
  for (std::int64_t e = 0; e < 4000; ++e) ++first[static_cast<std::size_t>(sample_order(usable, 9, e).front())];
  for (const auto n : first) EXPECT_NEAR(static_cast<double>(n), 500, 105);
}

TEST(Packs, EverySampleOnceAndNoPackTooLong) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto lengths = random_lengths(round, 700, 90);
    const auto order = sample_order(iota(lengths.size()), 5, static_cast<std::int64_t>(round));
    const auto packs = make_packs(order, lengths, 64);
    EXPECT_EQ(sorted(flat(packs)), iota(lengths.size()));
    std::int64_t oversize = 0;
    for (const auto& p : packs) {
      std::int64_t sum = 0;
      for (const auto s : p.samples) sum += lengths[static_cast<std::size_t>(s)];
      EXPECT_EQ(p.n_tokens, sum);
      if (sum > 64) {
        EXPECT_EQ(p.samples.size(), 1u);
      }
      oversize += sum > 64;
    }
    EXPECT_GT(oversize, 100);  // the data reach that branch
  }
}

TEST(Packs, AgreeWithTheSlowForm) {
  for (std::uint64_t round = 0; round < 12; ++round) {
    // Long samples first: more than 64 packs are open before short ones come, so the look-back decides.
    auto lengths = random_lengths(100 + round, 900, round % 3 == 0 ? 30 : 100);
    for (std::size_t i = 0; i < 200; ++i) lengths[i] = 55 + static_cast<std::int64_t>(bits(200 + round, i) % 40);
    const auto order = iota(lengths.size());
    const auto packs = make_packs(order, lengths, 100), slow = slow_packs(order, lengths, 100);
    ASSERT_EQ(packs.size(), slow.size());
    for (std::size_t i = 0; i < packs.size(); ++i) EXPECT_EQ(packs[i].samples, slow[i].samples) << i;
  }
}

TEST(Packs, LookBackIs64) {
  // n packs of 60 are open, then one sample of 40 fits the oldest that is still looked at.
  for (const std::size_t n : {63u, 64u, 65u, 70u}) {
    Ints lengths(n, 60);
    lengths.push_back(40);
    const auto packs = make_packs(iota(n + 1), lengths, 100);
    ASSERT_EQ(packs.size(), n);
    const std::size_t expected = n <= 64 ? 0 : n - 64;
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(packs[i].samples.size(), i == expected ? 2u : 1u) << n << " " << i;
  }
}

TEST(Packs, FullAndOversizeOnesDoNotTakePlacesInTheLookBack) {
  Ints lengths{60};
  lengths.insert(lengths.end(), 100, 100);
  lengths.insert(lengths.end(), 100, 101);
  lengths.push_back(40);
  const auto packs = make_packs(iota(lengths.size()), lengths, 100);
  EXPECT_EQ(packs.front().samples, (Ints{0, 201}));
}

TEST(Packs, RefusesWhatCannotBe) {
  EXPECT_THROW(make_packs(Ints{0}, Ints{0}, 8), aerie::base::Bug);
  EXPECT_THROW(make_packs(Ints{1}, Ints{4}, 8), aerie::base::Bug);
  EXPECT_THROW(PackList({}, {}, 1, 8), aerie::base::DataError);
}

TEST(PackList, IsTheEpochsOneAfterAnother) {
  const auto lengths = random_lengths(1, 50, 40);
  const Ints usable{1, 2, 3, 5, 8, 13, 21, 34, 40, 44, 49};
  Ints expected;
  Ints begins{0};
  for (std::int64_t e = 0; e < 5; ++e) {
    const auto packs = make_packs(sample_order(usable, 77, e), lengths, 64);
    const auto f = flat(packs);
    EXPECT_EQ(sorted(f), usable);
    expected.insert(expected.end(), f.begin(), f.end());
    begins.push_back(begins.back() + static_cast<std::int64_t>(packs.size()));
  }
  PackList list(usable, lengths, 77, 64);
  Ints found;
  for (std::int64_t i = 0; i < begins.back(); ++i)
    found.insert(found.end(), list.at(i).samples.begin(), list.at(i).samples.end());
  EXPECT_EQ(found, expected);
  for (std::int64_t e = 0; e < 5; ++e) {
    EXPECT_EQ(list.epoch_begin(e), begins[static_cast<std::size_t>(e)]);
    EXPECT_EQ(list.packs_in_epoch(e), begins[static_cast<std::size_t>(e) + 1] - begins[static_cast<std::size_t>(e)]);
  }
  // A fresh list that starts in the middle (a resume), then goes back, gives the same packs.
  PackList resumed(usable, lengths, 77, 64);
  for (const auto i : {begins[4], begins[4] - 1, begins[1], std::int64_t{0}, begins[5] - 1})
    EXPECT_EQ(resumed.at(i).samples, list.at(i).samples) << i;
}

TEST(DealPacks, EveryPackOnceAndBalanced) {
  for (std::uint64_t round = 0; round < 30; ++round) {
    const auto costs = random_lengths(300 + round, 32, 1000);
    for (const int ranks : {1, 3, 4, 40}) {
      const auto dealt = deal_packs(costs, ranks);
      ASSERT_EQ(dealt.size(), static_cast<std::size_t>(ranks));
      std::vector<std::size_t> all;
      std::int64_t most = 0, total = 0;
      for (const auto& mine : dealt) {
        EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
        std::int64_t load = 0;
        for (const auto p : mine) load += costs[p];
        most = std::max(most, load);
        total += load;
        all.insert(all.end(), mine.begin(), mine.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<std::size_t> expected(costs.size());
      std::iota(expected.begin(), expected.end(), std::size_t{0});
      EXPECT_EQ(all, expected);
      // Graham: longest first is within 4/3 of the best, which is at least the mean and the largest pack.
      const double best =
          std::max(static_cast<double>(total) / ranks, static_cast<double>(*std::max_element(costs.begin(), costs.end())));
      if (ranks <= 4) {
        EXPECT_LE(static_cast<double>(most), best * 4 / 3);
      } else {
        EXPECT_EQ(most, *std::max_element(costs.begin(), costs.end()));
      }
    }
  }
}

TEST(DealPacks, KnownExamples) {
  EXPECT_EQ(deal_packs(Ints{5, 9, 3, 3}, 2), (std::vector<std::vector<std::size_t>>{{1}, {0, 2, 3}}));
  EXPECT_EQ(deal_packs(Ints{}, 2), (std::vector<std::vector<std::size_t>>{{}, {}}));
  EXPECT_EQ(deal_packs(Ints{0, 0, 0}, 3), (std::vector<std::vector<std::size_t>>{{0}, {1}, {2}}));
}
}  // namespace
