// SPDX-License-Identifier: Apache-2.0
#include "preflight_clear.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "leftovers.hpp"

namespace aerie::apps {
namespace {
using base::Json;
constexpr double grace_s = 10;

/// What this host has, after it was ended; null when there is nothing to tell.
Json clear_here(const std::filesystem::path& run, const report::RunState& state,
                const std::map<std::int64_t, std::string>& over) {
  const auto gpus = node::look_at_gpus();
  const auto left = find_leftovers(run, state, over, gpus);
  const auto strangers = find_strangers(run, state, over, left, gpus);
  if (left.found.empty() && left.spared.empty() && left.rebooted.empty() && left.hidden.empty() && strangers.empty())
    return nullptr;
  Json out{{"host", base::host_name()},
           {"boot_id", base::this_process().boot_id},
           {"ended", end_leftovers(left.found, grace_s)},
           {"spared", Json::array()},
           {"foreign", Json::array()},
           {"rebooted_since", left.rebooted},
           {"hidden", left.hidden}};
  for (const auto& s : left.spared)
    out["spared"].push_back({{"pid", s.process.pid}, {"command", s.process.command}, {"why", s.why}});
  for (const auto& s : strangers) {
    auto line = to_json(s);
    line["text"] = describe(s);
    out["foreign"].push_back(std::move(line));
  }
  return out;
}

void tell(const Json& host) {
  const auto name = host.at("host").get<std::string>();
  for (const auto& e : host.at("ended"))
    base::log_info(fmt::format("{}: process {} of attempt {} was left over: {}", name, e.at("pid").get<std::int64_t>(),
                               e.at("attempt").get<std::int64_t>(), e.at("how").get<std::string>()));
  for (const auto& s : host.at("spared"))
    base::log_warning(
        fmt::format("{}: process {} is left alone: {}", name, s.at("pid").get<std::int64_t>(), s.at("why").get<std::string>()));
  for (const auto& s : host.at("foreign"))
    base::log_warning(fmt::format("{}: foreign: {}", name, s.at("text").get<std::string>()));
  for (const auto& n : host.at("rebooted_since"))
    base::log_info(fmt::format("{} was started again since attempt {}: nothing of it is left", name, n.get<std::int64_t>()));
  for (const auto& n : host.at("hidden"))
    base::log_info(fmt::format("{}: ranks of attempt {} cannot be seen from here (another container?): they may be alive", name,
                               n.get<std::int64_t>()));
}
}  // namespace

void clear_nodes(const ProgramContext& context) {
  const auto& world = context.world;
  report::RunState state;
  std::map<std::int64_t, std::string> over;
  auto text = std::string("{}");  // what the root knows: Slurm is asked once
  const auto error = base::capture([&] {
    state = report::replay(report::Ledger(context.config.run_dir).read());
    over = attempts_over(state, std::nullopt, base::this_process());
    if (!world.is_root()) return;
    Json all = Json::object();
    for (const auto& [number, why] : attempts_over(state, jobs_in_queue(state), base::this_process()))
      all[std::to_string(number)] = why;
    text = all.dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  const auto theirs = Json::parse(world.broadcast(text));  // collective over world
  for (const auto& [number, why] : theirs.items()) over.emplace(std::stoll(number), why.get<std::string>());

  const auto hosts = world.all_gather(base::host_name());  // collective over world
  const bool first = std::find(hosts.begin(), hosts.end(), base::host_name()) - hosts.begin() == world.rank();
  Json mine;
  if (first && !error) try {
      mine = clear_here(context.config.run_dir, state, over);
    } catch (const std::exception& e) {  // anything: the others wait in the collective that follows
      base::log_warning(e.what());
    }
  Json nodes = Json::array();
  for (const auto& t : world.all_gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace)))  // collective over world
    if (auto one = Json::parse(t); !one.is_null()) nodes.push_back(std::move(one));
  if (!world.is_root()) return;
  if (error) base::log_warning(error->what());
  if (nodes.empty()) return;
  for (const auto& n : nodes) tell(n);
  const auto unwritten = base::capture([&] { context.ledger.evidence("leftovers", {{"nodes", nodes}}); });
  if (unwritten) base::log_warning(unwritten->what());  // the check of the directory will say why
}

}  // namespace aerie::apps
