// SPDX-License-Identifier: Apache-2.0
// `aerie accept-missing`: records a person's decision to go on without failed samples. Nothing else makes a phase with missing
// samples complete.
#include <aerie/base/error.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
std::vector<NotDone> named(const StoreView& view, const std::string& list) {
  std::vector<NotDone> out;
  std::istringstream in(list);
  for (std::string id; std::getline(in, id, ',');) {
    const auto is_it = [&](const NotDone& f) { return f.id == id || (f.id.empty() && fmt::format("#{}", f.sample) == id); };
    const auto before = out.size();
    std::copy_if(view.failed.begin(), view.failed.end(), std::back_inserter(out), is_it);
    if (out.size() == before)
      throw base::DataError(fmt::format("'{}' is not among the failed samples", id),
                            view.failed.empty() ? "no sample has failed" : "failed are " + name_some(view.failed));
  }
  return out;
}
}  // namespace

int command_accept_missing(int argc, char** argv) {
  CLI::App app("Records the decision to go on without failed samples.", "aerie accept-missing");
  std::string run, ids, reason;
  bool all = false;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_option("--ids", ids, "sample ids, separated by commas");
  app.add_flag("--all-failed", all, "every failed sample that has no decision yet");
  app.add_option("--reason", reason, "why; stands in the ledger")->required();
  if (!parse_command_line(app, argc, argv)) return 0;
  if (ids.empty() == !all) throw base::ConfigError("give either --ids LIST or --all-failed");
  if (reason.find_first_not_of(" \t") == std::string::npos)
    throw base::ConfigError("--reason is empty", "say why the samples may be missing");

  const auto config = config::load(run);
  const auto view = view_store(config);
  if (!view)
    throw base::MissingInputError((config.store_dir() / "manifest.json").string() + ": no store yet", "run aerie-extract first");
  auto chosen = all ? view->undecided() : named(*view, ids);
  std::erase_if(chosen, [](const NotDone& f) { return f.excluded || f.decided; });
  if (chosen.empty()) return print("nothing to decide: no failed sample waits for a decision"), 0;

  base::Json list = base::Json::array(), samples = base::Json::array(), reasons = base::Json::object();
  for (const auto& f : chosen) {
    list.push_back(f.id.empty() ? base::Json(f.sample) : base::Json(f.id));
    samples.push_back(f.sample);
    auto& n = reasons[std::string(io::reason_name(f.reason))];
    n = n.is_null() ? 1 : n.get<int>() + 1;
  }
  const char* user = std::getenv("USER");
  report::Ledger(config.run_dir)
      .decision("accept-missing", {{"ids", list},
                                   {"samples", samples},
                                   {"count", chosen.size()},
                                   {"reasons", reasons},
                                   {"reason", reason},
                                   {"by", user ? user : ""}});
  print(fmt::format("accepted {} missing {}: {}", chosen.size(), chosen.size() == 1 ? "sample" : "samples", name_some(chosen)));
  if (const auto left = view->undecided().size() - chosen.size(); left > 0)
    print(fmt::format("{} still wait for a decision", left));
  return 0;
}

}  // namespace aerie::apps
