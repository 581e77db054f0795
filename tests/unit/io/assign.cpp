// SPDX-License-Identifier: Apache-2.0
// Who gets what, and how several ranks write into one part.
#include <algorithm>
#include <numeric>

#include "store_fixture.hpp"

namespace aerie::test {
namespace {

using io::StateKind;
using io::Store;

/// Every pending sample once, in a part its rank leases or joins; a joined part is leased and shared on the same host.
void expect_sound(const Store& store, const std::vector<io::Assignment>& all, const std::vector<int>& hosts) {
  std::vector<int> times(static_cast<std::size_t>(store.size()));
  std::vector<std::int64_t> leased;
  const auto has = [](const std::vector<std::int64_t>& v, std::int64_t x) { return std::find(v.begin(), v.end(), x) != v.end(); };
  for (std::size_t r = 0; r < all.size(); ++r) {
    EXPECT_TRUE(std::is_sorted(all[r].samples.begin(), all[r].samples.end()));
    leased.insert(leased.end(), all[r].parts.begin(), all[r].parts.end());
    for (const auto s : all[r].samples) {
      ++times[static_cast<std::size_t>(s)];
      EXPECT_TRUE(has(all[r].parts, store.part_of(s)) || has(all[r].joined, store.part_of(s)));
    }
    for (const auto p : all[r].shared) EXPECT_TRUE(has(all[r].parts, p));
    for (const auto p : all[r].joined) {
      bool found = false;
      for (std::size_t q = 0; q < all.size(); ++q) found |= hosts[q] == hosts[r] && q != r && has(all[q].shared, p);
      EXPECT_TRUE(found) << "rank " << r << " joins part " << p;
    }
  }
  for (std::int64_t s = 0; s < store.size(); ++s)
    EXPECT_EQ(times[static_cast<std::size_t>(s)], store.state(s).kind == StateKind::pending ? 1 : 0) << s;
  std::sort(leased.begin(), leased.end());
  EXPECT_EQ(std::adjacent_find(leased.begin(), leased.end()), leased.end()) << "a part is leased once";
}

std::int64_t tokens_of(const Store& store, const io::Assignment& a) {
  return std::accumulate(a.samples.begin(), a.samples.end(), std::int64_t{0},
                         [&](std::int64_t n, std::int64_t s) { return n + store.length(s); });
}

TEST(Assign, SplitsPartsAmongTheRanksOfAHost) {
  const TempDir dir;
  Store::create(dir / "one", small_identity(), small_plan(), 1 << 30);
  const auto one = Store::open(dir / "one");
  ASSERT_EQ(one.parts().size(), 1U);
  const std::vector<int> together(4, 0);
  const auto four = io::assign(one, together);
  expect_sound(one, four, together);
  const auto total = one.counts().total_tokens;
  for (const auto& a : four) {
    EXPECT_GT(tokens_of(one, a), total / 4 - 41) << "the longest sample has 40";
    EXPECT_LT(tokens_of(one, a), total / 4 + 41);
  }
  const std::vector<int> apart{0, 1, 2, 3};
  const auto lonely = io::assign(one, apart);
  expect_sound(one, lonely, apart);
  EXPECT_EQ(std::count_if(lonely.begin(), lonely.end(), [](const auto& a) { return a.samples.empty(); }), 3)
      << "never across hosts";
}

TEST(Assign, SoundForAnyNumberOfRanksAndHosts) {
  const TempDir dir;
  for (const std::int64_t tokens : {60, 100, 170, 300}) {
    Store::create(dir / std::to_string(tokens), small_identity(), small_plan(), tokens * (8 * hidden + 5));
    const auto store = Store::open(dir / std::to_string(tokens));
    for (int ranks = 1; ranks <= 30; ++ranks)
      for (int hosts = 1; hosts <= 3; ++hosts) {
        std::vector<int> host;
        for (int r = 0; r < ranks; ++r) host.push_back(r % hosts);
        const auto all = io::assign(store, host);
        expect_sound(store, all, host);
        if (hosts == 1 && ranks <= 20) {
          for (const auto& a : all) EXPECT_FALSE(a.samples.empty() && static_cast<std::size_t>(ranks) <= store.parts().size());
        }
      }
  }
}

TEST(Assign, ASplitPartIsWrittenByAllAndLeasedToTheLast) {
  const TempDir dir;
  Store::create(dir / "s", small_identity(), small_plan(), 1 << 30);
  auto store = Store::open(dir / "s");
  const std::vector<int> hosts(3, 0);
  const auto all = io::assign(store, hosts);
  std::vector<std::unique_ptr<io::StoreWriter>> writers;
  for (const auto& a : all) writers.push_back(std::make_unique<io::StoreWriter>(store, a, small_policy("job 7")));
  EXPECT_THROW(writers[1]->join(), base::RefusedError) << "not shared yet";
  for (auto& w : writers) w->share();
  for (auto& w : writers) w->join();
  const auto intruder = [&] {
    return error_of<base::RefusedError>([&] { io::StoreWriter(store, std::vector<std::int64_t>{0}, small_policy("job 8")); });
  };
  EXPECT_TRUE(contains(intruder(), "leased by job 7"));
  EXPECT_EQ(io::leased_parts(store), (std::vector<std::int64_t>{0}));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const auto s : all[r].samples) EXPECT_TRUE(writers[r]->put(s, make_sample(s, store.length(s))));
  writers[0]->close();
  EXPECT_TRUE(contains(intruder(), "leased by job 7")) << "the owner has gone, the others have not";
  writers[1]->close();
  writers[2]->close();
  EXPECT_EQ(intruder(), "");
  EXPECT_TRUE(io::leased_parts(store).empty());
  store.refresh();
  EXPECT_EQ(store.counts().done, 20);
  io::SampleData d;
  for (std::int64_t s = 0; s < store.size(); ++s)
    if (store.state(s).kind == StateKind::done) {
      store.read(s, d);
      EXPECT_TRUE(equal(d, make_sample(s, store.length(s)))) << s;
    }
}

TEST(Assign, WithoutLocksNothingIsLeased) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  auto policy = small_policy();
  policy.locks = io::Locks::none;
  io::StoreWriter a(store, std::vector<std::int64_t>{0}, policy);
  EXPECT_NO_THROW(io::StoreWriter(store, std::vector<std::int64_t>{0}, policy));
  EXPECT_TRUE(io::leased_parts(store).empty());
}

}  // namespace
}  // namespace aerie::test
