// SPDX-License-Identifier: Apache-2.0
// The no-progress guard: how many attempts of one program in a row got nowhere. Computed from the ledger alone, so that deaths
// that left no trace of their own count too.
#include <aerie/report/ledger.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>

#include <algorithm>

namespace aerie::report {
namespace {
using base::Json;

struct Trial {
  std::int64_t number = 0;
  int exit_code = -1;
  bool ended = false, progress = false, own = false;
};

bool is_this_process(const Json& begin) {
  const auto p = begin.find("process");
  if (p == begin.end()) return false;
  const auto self = base::this_process();
  return p->value("host", "") == self.host && p->value("boot_id", "") == self.boot_id &&
         p->value("pid", std::int64_t{0}) == self.pid && p->value("start_ticks", std::int64_t{0}) == self.start_ticks &&
         p->value("pid_namespace", self.pid_namespace) == self.pid_namespace;
}

/// True for the begin line of another task of the array that `job` is a task of.
bool is_sibling(const Json& begin, const std::string& job) {
  const auto array = job.substr(0, job.find('_') + 1);  // "12_", empty when it is no array task
  const auto p = begin.find("process");
  if (array.empty() || p == begin.end()) return false;
  const auto theirs = p->value("job", "");
  return theirs != job && theirs.starts_with(array);
}

/// Notes that `done` units of work exist. More than ever before is progress of `maker`, or of the newest attempt before this
/// process's.
void note_done(std::vector<Trial>& trials, Trial* maker, std::optional<std::int64_t>& most, std::int64_t done) {
  if (!maker) {
    const auto it = std::find_if(trials.rbegin(), trials.rend(), [](const Trial& t) { return !t.own; });
    if (it != trials.rend()) maker = &*it;
  }
  if (most && done > *most && maker) maker->progress = true;
  most = std::max(most.value_or(done), done);
}
std::optional<std::int64_t> done_in(const Json& line) {
  const auto details = line.find("details");
  if (details == line.end() || !details->is_object() || !details->contains("done")) return std::nullopt;
  return details->at("done").get<std::int64_t>();
}
}  // namespace

std::int64_t attempts_without_progress(const std::vector<Json>& lines, const std::string& program,
                                       std::optional<std::int64_t> done_now, const std::string& job) {
  std::vector<Trial> trials;
  std::optional<std::int64_t> most_done;
  std::int64_t highest_step = -1;
  try {
    for (const auto& line : lines) {
      const auto kind = line.at("kind").get<std::string>();
      if (kind == "decision") {
        const auto what = line.value("what", "");
        if (what == "fresh-start") highest_step = -1;
        const Json details = line.value("details", Json{});
        const bool for_all = !details.is_object() || !details.contains("program");
        if (what == "reset-attempts" && (for_all || details.at("program") == program)) trials.clear();
      } else if (kind == "checkpoint") {
        const auto step = line.at("step").get<std::int64_t>();
        const bool ours = line.value("program", program) == program;
        if (ours && step > highest_step && !trials.empty()) {
          const auto number = line.value("attempt", trials.back().number);
          for (auto& t : trials) t.progress = t.progress || t.number == number;
        }
        highest_step = std::max(highest_step, step);
      } else if (kind == "attempt" && line.at("program") == program) {
        const auto number = line.at("number").get<std::int64_t>();
        if (line.at("event") == "begin") {
          if (is_sibling(line, job)) continue;
          if (const auto done = done_in(line)) note_done(trials, nullptr, most_done, *done);
          trials.push_back({number, -1, false, false, is_this_process(line)});
          continue;
        }
        const auto it =
            std::find_if(trials.rbegin(), trials.rend(), [&](const Trial& t) { return t.number == number && !t.ended; });
        if (it == trials.rend()) continue;
        it->ended = true;
        it->exit_code = line.at("exit_code").get<int>();
        const Json details = line.value("details", Json{});
        if (details.is_object() && details.value("progress", false)) it->progress = true;
        if (const auto done = done_in(line)) note_done(trials, &*it, most_done, *done);
      }
    }
  } catch (const Json::exception& e) {
    throw base::DataError(std::string("ledger: ") + e.what(), "the ledger was edited or damaged");
  }
  if (done_now) note_done(trials, nullptr, most_done, *done_now);

  std::int64_t count = 0;
  for (auto it = trials.rbegin(); it != trials.rend(); ++it) {
    if (it->own && !it->ended) continue;
    if (it->progress || (it->ended && it->exit_code == static_cast<int>(base::ExitCode::done))) break;
    if (it->ended && it->exit_code == static_cast<int>(base::ExitCode::stopped)) continue;
    ++count;
  }
  return count;
}

}  // namespace aerie::report
