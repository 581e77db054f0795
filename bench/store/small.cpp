// SPDX-License-Identifier: Apache-2.0
// What does not depend on bytes but on the number of samples.
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/io/store_writer.hpp>

#include "common.hpp"

namespace aerie::bench {

void bench_small(const Shape& shape, std::int64_t samples, std::int64_t part_bytes, Table& table) {
  const auto dir = shape.dir / "small";
  const std::vector<io::PlannedSample> plan(static_cast<std::size_t>(samples), {16, io::FailReason::none});
  for (int round = 0; round < shape.rounds; ++round) {
    settle(shape.dir);
    table.add("small samples: create the store", "s", "",
              seconds([&] { io::Store::create(dir, identity(64, 16, shape.dtype), plan, part_bytes); }));
    io::Counts counts;
    table.add("small samples: open and count (status)", "s", "", seconds([&] { counts = io::Store::open(dir).counts(); }));
    base::expect(counts.pending == samples, "every sample is counted");
    std::int64_t assigned = 0;
    table.add("small samples: open, refresh, assign to 8 ranks", "s", "", seconds([&] {
                auto store = io::Store::open(dir);
                store.refresh();
                for (const auto& a : io::assign(store, 8)) assigned += static_cast<std::int64_t>(a.samples.size());
              }));
    base::expect(assigned == samples, "every sample is assigned");
    std::filesystem::remove_all(dir);
  }
}

}  // namespace aerie::bench
