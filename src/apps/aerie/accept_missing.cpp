// SPDX-License-Identifier: Apache-2.0
// `aerie accept-missing`: records a person's decision to go on without failed samples. Nothing else makes a phase with missing
// samples complete.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
/// The ids of --ids (a list with commas), --id (taken as they are) and --ids-file (one a line).
std::vector<std::string> ids_given(const std::string& list, const std::vector<std::string>& single, const std::string& file) {
  std::vector<std::string> out = single;
  std::istringstream in(list);
  for (std::string id; std::getline(in, id, ',');) out.push_back(id);
  if (file.empty()) return out;
  std::istringstream lines(base::read_text(file));
  for (std::string id; std::getline(lines, id);) {
    if (!id.empty() && id.back() == '\r') id.pop_back();
    if (!id.empty()) out.push_back(id);
  }
  return out;
}

/// A sample without an id is named by its number, "#12".
std::vector<NotDone> named(const StoreView& view, const std::vector<std::string>& ids) {
  std::multimap<std::string, const NotDone*> by_name;
  for (const auto& f : view.failed) by_name.emplace(f.id.empty() ? fmt::format("#{}", f.sample) : f.id, &f);
  std::map<std::int64_t, NotDone> out;
  for (const auto& id : ids) {
    const auto [begin, end] = by_name.equal_range(id);
    if (begin == end)
      throw base::DataError(fmt::format("'{}' is not among the failed samples", id),
                            view.failed.empty() ? "no sample has failed" : "failed are " + name_some(view.failed));
    for (auto it = begin; it != end; ++it) out.emplace(it->second->sample, *it->second);
  }
  std::vector<NotDone> list;
  for (auto& entry : out) list.push_back(std::move(entry.second));
  return list;
}

/// A decision covers what the ledger knew before it: failures of a job that was killed before it could record them come first.
void record_unrecorded(report::Ledger& ledger, const std::vector<NotDone>& chosen) {
  std::vector<report::FailedSample> fresh;
  for (const auto& f : chosen)
    if (!f.recorded) fresh.push_back({f.sample, f.id, std::string(io::reason_name(f.reason)), f.text});
  ledger.samples_failed(fresh);
}

/// An extraction that did all it could and failed for want of this decision is complete with it: there is nothing to run again.
bool complete_extraction(const config::Config& config, report::Ledger& ledger) {
  const auto view = view_store(config);
  if (view->counts.pending > 0 || !view->undecided().empty()) return false;
  const auto state = report::replay(ledger.read());
  const auto extract = state.phases.find(report::Phase::extract);
  if (extract == state.phases.end() || extract->second.state != report::PhaseState::failed) return false;
  auto evidence = extract->second.evidence;  // what it left; it must be what is there now
  if (!evidence.is_object() || evidence.value("store_state", "") != store_state_hash(view->store)) return false;
  evidence["accepted_missing"] = view->counts.failed - view->excluded;
  evidence["completed_by"] = "accept-missing";
  ledger.phase(report::Phase::extract, report::PhaseState::complete, evidence);
  return true;
}

std::string user_name() {
  const auto* entry = ::getpwuid(::getuid());
  return entry ? entry->pw_name : std::to_string(::getuid());
}
}  // namespace

int command_accept_missing(int argc, char** argv) {
  CLI::App app("Records the decision to go on without failed samples.", "aerie accept-missing");
  std::string run, ids, ids_file, reason;
  std::vector<std::string> id;
  bool all = false;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_option("--ids", ids, "sample ids, separated by commas");
  app.add_option("--id", id, "one sample id, taken as it is (it may hold commas); may be given again");
  app.add_option("--ids-file", ids_file, "a file with one id a line");
  app.add_flag("--all-failed", all, "every failed sample that has no decision yet");
  app.add_option("--reason", reason, "why; stands in the ledger")->required();
  if (!parse_command_line(app, argc, argv)) return 0;
  const bool some = !ids.empty() || !id.empty() || !ids_file.empty();
  if (some == all) throw base::ConfigError("give either --ids LIST (or --id, --ids-file) or --all-failed");
  if (reason.find_first_not_of(" \t") == std::string::npos)
    throw base::ConfigError("--reason is empty", "say why the samples may be missing");

  const auto config = config::load(run);
  const auto view = view_store(config);
  if (!view)
    throw base::MissingInputError((config.store_dir() / "manifest.json").string() + ": no store yet", "run aerie-extract first");
  auto chosen = all ? view->undecided() : named(*view, ids_given(ids, id, ids_file));
  std::erase_if(chosen, [](const NotDone& f) { return f.excluded || f.decided; });
  if (chosen.empty()) return print("nothing to decide: no failed sample waits for a decision"), 0;

  base::Json list = base::Json::array(), samples = base::Json::array(), reasons = base::Json::object();
  for (const auto& f : chosen) {
    list.push_back(f.id.empty() ? base::Json(f.sample) : base::Json(f.id));
    samples.push_back(f.sample);
    auto& n = reasons[std::string(io::reason_name(f.reason))];
    n = n.is_null() ? 1 : n.get<int>() + 1;
  }
  report::Ledger ledger(config.run_dir);
  record_unrecorded(ledger, chosen);
  ledger.decision("accept-missing", {{"ids", list},
                                     {"samples", samples},
                                     {"count", chosen.size()},
                                     {"reasons", reasons},
                                     {"reason", reason},
                                     {"by", user_name()}});
  print(fmt::format("accepted {} missing {}: {}", chosen.size(), chosen.size() == 1 ? "sample" : "samples", name_some(chosen)));
  if (const auto left = view->undecided().size() - chosen.size(); left > 0)
    print(fmt::format("{} still wait for a decision", left));
  else if (complete_extraction(config, ledger))
    print("extract is complete, with what is missing by decision");
  return 0;
}

}  // namespace aerie::apps
