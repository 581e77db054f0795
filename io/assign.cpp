// SPDX-License-Identifier: Apache-2.0
// Who extracts what. Integers only, ties broken by index: every rank computes the same answer.
#include <algorithm>
#include <map>
#include <numeric>

#include <aerie/base/error.hpp>
#include <aerie/io/store_writer.hpp>

namespace aerie::io {
namespace {

struct Work {
  std::int64_t part = 0, tokens = 0;
  std::vector<std::int64_t> samples;
};

/// Unfinished parts, the largest first.
std::vector<Work> remaining(const Store& store, std::span<const std::int64_t> skip_parts) {
  std::vector<Work> work;
  const auto& parts = store.parts();
  for (std::int64_t p = 0; p < static_cast<std::int64_t>(parts.size()); ++p) {
    if (std::find(skip_parts.begin(), skip_parts.end(), p) != skip_parts.end()) continue;
    Work w;
    w.part = p;
    const auto& part = parts[static_cast<std::size_t>(p)];
    for (auto s = part.first; s < part.first + part.n; ++s)
      if (store.state(s).kind == StateKind::pending && store.length(s) > 0) {  // no rows: a damaged record of a rejected sample
        w.samples.push_back(s);
        w.tokens += store.length(s);
      }
    if (!w.samples.empty()) work.push_back(std::move(w));
  }
  std::stable_sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.tokens > b.tokens; });
  return work;
}

/// Whole parts, each to the least loaded of `ranks`.
void deal_whole(const std::vector<const Work*>& work, const std::vector<std::size_t>& ranks, std::vector<Assignment>& out) {
  std::vector<std::int64_t> load(ranks.size());
  for (const auto* w : work) {
    const auto r = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[r] += w->tokens;
    auto& a = out[ranks[r]];
    a.parts.push_back(w->part);
    a.samples.insert(a.samples.end(), w->samples.begin(), w->samples.end());
  }
}

/// One part over consecutive ranks of one host, in runs of about equal tokens; the first leases it.
void split(const Store& store, const Work& work, std::span<const std::size_t> ranks, std::vector<Assignment>& out) {
  const auto n = static_cast<std::int64_t>(ranks.size());
  std::int64_t before = 0;  // tokens of the samples dealt so far
  std::vector<bool> used(ranks.size());
  for (const auto s : work.samples) {
    const auto length = store.length(s);
    const auto r = static_cast<std::size_t>(std::min(n - 1, (2 * before + length) * n / (2 * work.tokens)));  // by its middle
    before += length;
    out[ranks[r]].samples.push_back(s);
    used[r] = true;
  }
  out[ranks[0]].parts.push_back(work.part);
  for (std::size_t r = 1; r < ranks.size(); ++r)
    if (used[r]) out[ranks[r]].joined.push_back(work.part);
  if (std::find(used.begin() + 1, used.end(), true) != used.end()) out[ranks[0]].shared.push_back(work.part);
}

/// Fewer parts than ranks on one host: a rank each, then one more at a time to the part with most tokens a rank.
void deal_split(const Store& store, const std::vector<const Work*>& work, const std::vector<std::size_t>& ranks,
                std::vector<Assignment>& out) {
  std::vector<std::int64_t> share(work.size(), 1);
  for (auto spare = static_cast<std::int64_t>(ranks.size() - work.size()); spare > 0; --spare) {
    std::size_t most = work.size();
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (share[i] >= static_cast<std::int64_t>(work[i]->samples.size())) continue;  // more ranks than samples help nobody
      if (most == work.size() || work[i]->tokens * share[most] > work[most]->tokens * share[i]) most = i;
    }
    if (most == work.size()) break;
    ++share[most];
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    split(store, *work[i], std::span(ranks).subspan(next, static_cast<std::size_t>(share[i])), out);
    next += static_cast<std::size_t>(share[i]);
  }
}

}  // namespace

std::vector<Assignment> assign(const Store& store, std::span<const int> host_of_rank, std::span<const std::int64_t> skip_parts) {
  base::expect(!host_of_rank.empty(), "there is a rank to assign to");
  const auto work = remaining(store, skip_parts);
  std::vector<Assignment> out(host_of_rank.size());
  if (work.size() >= host_of_rank.size()) {
    std::vector<const Work*> all;
    for (const auto& w : work) all.push_back(&w);
    std::vector<std::size_t> ranks(host_of_rank.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    deal_whole(all, ranks, out);
  } else {
    struct Host {
      std::vector<std::size_t> ranks;
      std::vector<const Work*> work;
      std::int64_t load = 0;
    };
    std::map<int, Host> hosts;
    for (std::size_t r = 0; r < host_of_rank.size(); ++r) hosts[host_of_rank[r]].ranks.push_back(r);
    for (const auto& w : work) {  // to the host whose load per rank is least with this part on it
      const auto after = [&](const Host& h) { return h.load + w.tokens; };
      const auto best = std::min_element(hosts.begin(), hosts.end(), [&](const auto& a, const auto& b) {
        return after(a.second) * static_cast<std::int64_t>(b.second.ranks.size()) <
               after(b.second) * static_cast<std::int64_t>(a.second.ranks.size());
      });
      best->second.load += w.tokens;
      best->second.work.push_back(&w);
    }
    for (const auto& [number, h] : hosts) {
      if (h.work.size() >= h.ranks.size())
        deal_whole(h.work, h.ranks, out);
      else
        deal_split(store, h.work, h.ranks, out);
    }
  }
  for (auto& a : out) {
    std::sort(a.parts.begin(), a.parts.end());
    std::sort(a.samples.begin(), a.samples.end());
  }
  return out;
}

std::vector<Assignment> assign(const Store& store, int ranks, std::span<const std::int64_t> skip_parts) {
  base::expect(ranks > 0, "there is a rank to assign to");
  std::vector<int> hosts(static_cast<std::size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return assign(store, hosts, skip_parts);
}

}  // namespace aerie::io
