// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/node/process.hpp>

namespace aerie::preflight {
namespace {

/// A trouble and the ranks that have it.
struct Shared {
  Trouble trouble;
  std::vector<std::size_t> ranks;
};

/// "gpu07", "rank 3 gpu07" when other ranks of that host do not have it, "gpu07, gpu08, gpu09 and 12 more".
std::string who(const Scene& s, const std::vector<std::size_t>& ranks) {
  std::vector<std::string> hosts;
  for (const auto r : ranks)
    if (std::find(hosts.begin(), hosts.end(), s.hosts[r]) == hosts.end()) hosts.push_back(s.hosts[r]);
  if (hosts.size() == 1) {
    const auto all = std::count(s.hosts.begin(), s.hosts.end(), hosts[0]);
    return std::cmp_less(ranks.size(), all) ? fmt::format("rank {} {}", ranks[0], hosts[0]) : hosts[0];
  }
  constexpr std::size_t most = 3;
  const auto named = fmt::format("{}", fmt::join(hosts.begin(), hosts.begin() + std::min(most, hosts.size()), ", "));
  return hosts.size() > most ? fmt::format("{} and {} more", named, hosts.size() - most) : named;
}

std::vector<Shared> gather(const Scene& s, const Troubles& mine) {
  base::Json list = base::Json::array();
  for (const auto& t : mine) list.push_back({static_cast<int>(t.result), t.text, t.advice});
  std::vector<Shared> out;
  const auto all = s.world.all_gather(list.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const auto& t : base::Json::parse(all[r])) {
      const Trouble one{static_cast<Result>(t[0].get<int>()), t[1].get<std::string>(), t[2].get<std::string>()};
      auto at = std::find_if(out.begin(), out.end(),
                             [&](const Shared& o) { return o.trouble.text == one.text && o.trouble.result == one.result; });
      if (at == out.end()) at = out.insert(out.end(), {one, {}});
      at->ranks.push_back(r);
    }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.trouble.result > b.trouble.result; });
  return out;
}
}  // namespace

bool Scene::first_of_host() const { return std::find(hosts.begin(), hosts.end(), host()) == hosts.begin() + world.rank(); }

std::vector<std::string> Scene::nodes() const {
  std::vector<std::string> out;
  for (const auto& h : hosts)
    if (std::find(out.begin(), out.end(), h) == out.end()) out.push_back(h);
  return out;
}

Scene make_scene(const comm::Comm& world, const Request& request) {
  const auto self = base::this_process();
  Scene s{world,
          request,
          world.all_gather(request.rehearsal.host.empty() ? self.host : request.rehearsal.host),
          world.broadcast(fmt::format("{}-{}-{}-{}", self.host, self.pid_namespace, self.pid, self.start_ticks)),
          node::look_at_gpus(),
          {}};
  const auto pids = world.all_gather(self.pid);
  for (std::size_t r = 0; r < pids.size(); ++r)
    if (s.hosts[r] == s.host() && node::sees_pids_of_the_driver()) s.own.insert(pids[r]);
  return s;
}

std::string error_text(const std::function<void()>& f) {
  const auto error = base::capture(f);
  return error ? error->what() : std::string();
}

Troubles trouble(const std::function<void()>& f, const std::string& advice) {
  const auto text = error_text(f);
  return text.empty() ? Troubles{} : Troubles{{Result::fail, text, advice}};
}

Finding judge(const Scene& s, std::string check, const Troubles& mine, const std::string& good) {
  Finding f;
  f.check = std::move(check);
  const auto all = gather(s, mine);
  const auto fine = s.world.broadcast(good);
  if (all.empty()) {
    f.seen.push_back(fine);
    return f;
  }
  f.result = all.front().trouble.result;
  f.advice = all.front().trouble.advice;
  std::set<std::string> bad;
  for (const auto& t : all) {
    f.seen.push_back(fmt::format("{}: {}", who(s, t.ranks), t.trouble.text));
    if (t.trouble.result != f.result) continue;
    for (const auto r : t.ranks) bad.insert(s.hosts[r]);
  }
  if (bad.size() < s.nodes().size()) f.hosts.assign(bad.begin(), bad.end());
  return f;
}

Usual usual(const Scene& s, const std::string& mine) {
  const auto all = s.world.all_gather(mine);
  std::map<std::string, int> votes;
  std::set<std::string> counted;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (counted.insert(s.hosts[r]).second) ++votes[all[r]];
  Usual out{all[0], s.hosts[0], true};
  int most = votes.at(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r)
    if (votes.contains(all[r]) && votes.at(all[r]) > most) out.value = all[r], out.host = s.hosts[r], most = votes.at(all[r]);
  out.clear = std::count_if(votes.begin(), votes.end(), [&](const auto& v) { return v.second == most; }) == 1;
  return out;
}

base::Json gather_nodes(const Scene& s, const base::Json& mine) {
  base::Json out = base::Json::array();
  const auto all = s.world.all_gather(s.first_of_host() ? mine.dump(-1, ' ', false, base::Json::error_handler_t::replace) : "");
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    base::Json one = {{"host", s.hosts[r]}};
    one.update(base::Json::parse(all[r]));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace aerie::preflight
