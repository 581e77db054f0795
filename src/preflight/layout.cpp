// SPDX-License-Identifier: Apache-2.0
// Layout, time left, one program and one set of libraries everywhere.
#include "scene.hpp"

#include <fmt/format.h>

#include <aerie/base/log.hpp>

namespace aerie::preflight {

Finding layout(const Scene& s) {
  std::map<std::string, int> ranks;
  for (const auto& h : s.hosts) ++ranks[h];
  const auto nodes = static_cast<std::int64_t>(ranks.size());
  auto text = fmt::format("{} ranks on {} nodes", s.world.size(), nodes);
  bool wrong = false;
  if (s.request.nodes > 0 && nodes != s.request.nodes) {
    wrong = true;
    text += fmt::format(", but the job has {} nodes", s.request.nodes);
  }
  for (const auto& [host, n] : ranks)
    if (n != ranks.begin()->second) {
      wrong = true;
      text += fmt::format(", {} on {} and {} on {}", ranks.begin()->second, ranks.begin()->first, n, host);
      break;
    }
  Finding f;  // known to all ranks alike
  f.check = "layout";
  f.seen = {text};
  f.details = {{"ranks", s.world.size()}, {"nodes", nodes}};
  if (wrong) {
    f.result = Result::fail;
    f.advice = "start it with the launcher that MPI was built for: srun --mpi=pmix, or mpirun";
  }
  return f;
}

/// A warning that comes at once would put the job back before it has done anything, for ever.
Finding time_left(const Scene& s) {
  const auto& left = s.request.seconds_left;
  Troubles mine;
  std::string good = "no end is known";
  if (left) {
    const auto until = base::format_duration(*left);
    good = fmt::format("{} until the end, warned {} before it", until, base::format_duration(s.request.warning_s));
    if (s.world.is_root() && *left < s.request.warning_s + 30)
      mine.push_back({Result::fail,
                      fmt::format("{} until the end, and the warning comes up to {} before it: the job would only be requeued",
                                  until, base::format_duration(s.request.warning_s + 30)),
                      "ask for a longer --time, or a shorter --signal"});
  }
  auto f = judge(s, "time", mine, good);
  f.hosts.clear();  // no node's fault
  return f;
}

Finding version(const Scene& s) {
  const auto most = usual(s, s.request.version);
  Troubles mine;
  if (most.value != s.request.version)
    mine.push_back({Result::fail, fmt::format("another program than on {}: {}", most.host, s.request.version),
                    "install the same build on every node"});
  auto f = judge(s, "version", mine, most.value);
  if (!most.clear) f.hosts.clear();
  return f;
}

Finding libraries(const Scene& s) {
  const auto most = usual(s, base::Json(s.request.libraries).dump());
  const auto first = base::Json::parse(most.value);
  Troubles mine;
  for (const auto& [name, found] : s.request.libraries) {
    const auto there = first.value(name, std::string("none"));
    if (found != there)
      mine.push_back({Result::fail, fmt::format("{} is {}, on {} it is {}", name, found, most.host, there),
                      "load the same modules, Spack view or container on every node"});
  }
  for (const auto& [name, there] : first.items())
    if (!s.request.libraries.contains(name))
      mine.push_back({Result::fail, fmt::format("{} is not found, on {} it is {}", name, most.host, there.get<std::string>()),
                      "load the same modules, Spack view or container on every node"});
  std::vector<std::string> names;
  for (const auto& [name, found] : s.request.libraries) names.push_back(name + " " + found);
  auto f = judge(s, "libraries", mine, names.empty() ? "none are known" : fmt::format("{}", fmt::join(names, ", ")));
  if (!most.clear) f.hosts.clear();
  f.details = {{"usual", first}};
  return f;
}

}  // namespace aerie::preflight
