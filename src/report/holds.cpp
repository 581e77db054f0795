// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/holds.hpp>

#include <aerie/base/error.hpp>

#include <fmt/format.h>

namespace aerie::report {
namespace {
using base::Json;

void add(Holds& holds, const Json& line) {
  const auto& details = line.at("details");
  const auto jobs = details.at("jobs").get<std::vector<std::string>>();
  if (line.at("what") == jobs_let_go) {
    for (const auto& job : jobs) holds.erase(job), holds.erase(job.substr(0, job.find('_')));
    return;
  }
  const auto& by = details.at("process");
  const Holder holder{line.at("time").get<std::string>(),       by.at("host").get<std::string>(),
                      by.at("boot_id").get<std::string>(),      by.at("pid").get<std::int64_t>(),
                      by.at("start_ticks").get<std::int64_t>(), by.value("pid_namespace", std::int64_t{0})};
  for (const auto& job : jobs) holds[job] = holder;
}
}  // namespace

Holds holds_of_recoveries(const std::vector<Json>& lines) {
  Holds holds;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    if (line.value("kind", Json{}) != "evidence") continue;
    const auto what = line.value("what", Json{});
    if (what != jobs_held && what != jobs_let_go) continue;
    try {
      add(holds, line);
    } catch (const Json::exception& e) {
      throw base::DataError(fmt::format("ledger: record {}: {}", i + 1, e.what()), "the ledger was edited or damaged");
    }
  }
  return holds;
}

const Holder* find_holder(const Holds& holds, const std::string& job) {
  auto it = holds.find(job);
  if (it == holds.end()) it = holds.find(job.substr(0, job.find('_')));
  return it == holds.end() ? nullptr : &it->second;
}

}  // namespace aerie::report
