// SPDX-License-Identifier: Apache-2.0
#include "stall.hpp"

#include <aerie/base/host.hpp>
#include <aerie/report/advice.hpp>
#include <aerie/report/commit_clock.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "attempt_outcome.hpp"
#include "process_state.hpp"

namespace aerie::report {
namespace {
using base::Json;

/// The ranks as the begin line lists them; rank 0 alone where it does not.
Json ranks_of(const AttemptRecord& attempt) {
  const Json listed = attempt.begin_details.value("processes", Json{});
  if (listed.is_array() && !listed.empty()) return listed;
  return Json::array({{{"rank", 0},
                       {"host", attempt.host},
                       {"pid_namespace", attempt.pid_namespace},
                       {"pid", attempt.pid},
                       {"start_ticks", attempt.start_ticks}}});
}

Json process_json(const Json& rank, const std::string& boot_id) {
  const auto host = rank.value("host", "");
  const auto pid = rank.value("pid", std::int64_t{0});
  Json out = {{"rank", rank.value("rank", 0)}, {"host", host}, {"pid", pid}, {"state", nullptr}, {"waits_for", nullptr}};
  const auto self = base::this_process();
  if (host != self.host) return out;
  if (boot_id != self.boot_id) return out["state"] = "gone", out;
  const auto seen = node::find({pid, rank.value("start_ticks", std::int64_t{0}), rank.value("pid_namespace", std::int64_t{0})});
  if (seen.sight == node::Sight::gone) out["state"] = "gone";
  if (seen.sight != node::Sight::there) return out;
  const auto now = what_it_does(seen.process);
  out["state"] = now.state;
  if (!now.waits_for.empty()) out["waits_for"] = now.waits_for;
  return out;
}

/// Who wrote the snapshot: an attempt of the ledger, or for a phase that makes none a process that it names itself.
std::optional<AttemptRecord> writer_at_work(const RunState& state, const Json& attempts, const Json& snapshot) {
  const auto number = snapshot.value("attempt", std::int64_t{0});
  if (number > 0) {
    for (std::size_t i = 0; i < state.attempts.size(); ++i)
      if (state.attempts[i].number == number &&
          (attempts[i].at("outcome") == "running" || attempts[i].at("outcome") == "unknown"))
        return state.attempts[i];
    return std::nullopt;
  }
  const auto process = snapshot.find("process");
  if (process == snapshot.end() || !process->is_object()) return std::nullopt;
  AttemptRecord it;
  it.begin_details = Json::object();
  it.host = process->value("host", "");
  it.boot_id = process->value("boot_id", "");
  it.pid = process->value("pid", std::int64_t{0});
  it.start_ticks = process->value("start_ticks", std::int64_t{0});
  it.pid_namespace = process->value("pid_namespace", std::int64_t{0});
  return life_of(it) == Life::alive ? std::optional(it) : std::nullopt;
}

std::string boot_id_of(const AttemptRecord& attempt, const std::string& host) {
  const Json by_host = attempt.begin_details.value("boot_ids", Json::object());
  return by_host.is_object() && by_host.contains(host) ? by_host.value(host, "") : attempt.boot_id;
}
/// Where nothing can be seen from here: a command that looks from there.
Json how_to_look(const std::filesystem::path& run, const AttemptRecord& writer, const Json& processes, const Outside& outside) {
  const auto there = std::find_if(processes.begin(), processes.end(), [](const Json& p) { return p.at("state").is_null(); });
  if (there == processes.end()) return nullptr;
  const auto host = there->at("host").get<std::string>();
  const auto status = fmt::format("aerie status {}", shell_word(run.string()));
  if (writer.job.empty() || !outside.queue)  // a container of this host has a door of its own, which is not known here
    return host == base::host_name() ? Json{} : Json(fmt::format("ssh {} {}", host, status));
  const auto* job = find_job(*outside.queue, writer.job);
  if (!job) return nullptr;
  // A task of an array is known to srun by the number of its own job only.
  return fmt::format("srun --jobid={} --overlap -N1 -n1 -w {} {}", job->id.empty() ? writer.job : job->id, host, status);
}
}  // namespace

Json stall_json(const std::filesystem::path& run, const RunState& state, const Json& attempts, const Json& snapshot,
                const Json& counts, const Outside& outside, double now) {
  if (!snapshot.is_object()) return nullptr;
  const auto phase = snapshot.value("phase", Json{});
  std::optional<double> last_write;
  if (phase == "extract" && counts.is_object() && counts.contains("last_write_unix") && counts["last_write_unix"].is_number())
    last_write = counts["last_write_unix"].get<double>();
  const auto found = judge(snapshot, now, last_write);
  if (!found || !found->stalled) return nullptr;
  const auto writer = writer_at_work(state, attempts, snapshot);
  if (!writer) return nullptr;
  Json processes = Json::array();
  for (const auto& rank : ranks_of(*writer)) processes.push_back(process_json(rank, boot_id_of(*writer, rank.value("host", ""))));
  const auto look = how_to_look(run, *writer, processes, outside);
  return {{"phase", phase},
          {"attempt", writer->number > 0 ? Json(writer->number) : Json{}},
          {"job", writer->job},
          {"pid", writer->pid},
          {"since", utc_text(found->since_unix)},
          {"silent_s", std::round(10 * (now - found->since_unix)) / 10},
          {"median_interval_s", found->median_interval_s ? Json(*found->median_interval_s) : Json{}},
          {"limit_s", found->limit_s},
          {"processes", std::move(processes)},
          {"look", look}};
}

}  // namespace aerie::report
