// SPDX-License-Identifier: Apache-2.0
// Who extracts what. Integers only, ties broken by index: every rank computes the same answer.
#include <algorithm>

#include <aerie/base/error.hpp>
#include <aerie/io/store_writer.hpp>

namespace aerie::io {

std::vector<Assignment> assign(const Store& store, int ranks, std::span<const std::int64_t> skip_parts) {
  base::expect(ranks > 0, "there is a rank to assign to");
  struct Work {
    std::int64_t part = 0, tokens = 0;
    std::vector<std::int64_t> samples;
  };
  std::vector<Work> work;
  const auto& parts = store.parts();
  for (std::int64_t p = 0; p < static_cast<std::int64_t>(parts.size()); ++p) {
    if (std::find(skip_parts.begin(), skip_parts.end(), p) != skip_parts.end()) continue;
    Work w;
    w.part = p;
    const auto& part = parts[static_cast<std::size_t>(p)];
    for (auto s = part.first; s < part.first + part.n; ++s)
      if (store.state(s).kind == StateKind::pending) {
        w.samples.push_back(s);
        w.tokens += store.length(s);
      }
    if (!w.samples.empty()) work.push_back(std::move(w));
  }
  std::stable_sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.tokens > b.tokens; });

  std::vector<Assignment> out(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> load(out.size());
  for (auto& w : work) {
    const auto r = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[r] += w.tokens;
    out[r].parts.push_back(w.part);
    out[r].samples.insert(out[r].samples.end(), w.samples.begin(), w.samples.end());
  }
  for (auto& a : out) {
    std::sort(a.parts.begin(), a.parts.end());
    std::sort(a.samples.begin(), a.samples.end());
  }
  return out;
}

}  // namespace aerie::io
