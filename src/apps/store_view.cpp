// SPDX-License-Identifier: Apache-2.0
#include "store_view.hpp"

#include <aerie/dataset/dataset.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "shell_word.hpp"

namespace aerie::apps {
namespace {
bool excluded_by_rule(io::FailReason reason, const std::string& overlength) {
  return reason == io::FailReason::empty || reason == io::FailReason::no_loss ||
         (reason == io::FailReason::too_long && overlength == "skip");
}
struct Decisions {
  std::set<std::string> ids;
  std::set<std::int64_t> samples;
};
Decisions decisions_of(const report::RunState& state) {
  Decisions out;
  for (const auto& line : state.decisions) {
    if (line.value("what", "") != "accept-missing") continue;
    for (const auto& id : line.at("details").value("ids", base::Json::array())) {
      if (id.is_string()) out.ids.insert(id.get<std::string>());
      if (id.is_number_integer()) out.samples.insert(id.get<std::int64_t>());
    }
  }
  return out;
}
}  // namespace

std::vector<NotDone> StoreView::undecided() const {
  std::vector<NotDone> out;
  for (const auto& f : failed)
    if (!f.excluded && !f.decided) out.push_back(f);
  return out;
}

std::int64_t samples_settled(const io::Counts& counts) {
  const auto of = [&](io::FailReason reason) { return counts.by_reason[static_cast<std::size_t>(reason)]; };
  return counts.done + of(io::FailReason::nonfinite) + of(io::FailReason::target);
}
std::int64_t samples_settled(const config::Config& config) {
  if (!io::Store::exists(config.store_dir())) return 0;
  return samples_settled(io::Store::open(config.store_dir()).counts());
}

std::optional<StoreView> view_store(const config::Config& config) {
  if (!io::Store::exists(config.store_dir())) return std::nullopt;
  StoreView view{io::Store::open(config.store_dir()), {}, {}, 0};
  view.counts = view.store.counts();
  if (view.counts.failed == 0) return view;
  const auto state = report::replay(report::Ledger(config.run_dir).read());
  const auto decisions = decisions_of(state);
  std::optional<dataset::Dataset> data;
  if (std::filesystem::exists(config.dataset_file())) data = dataset::Dataset::open(config.dataset_file());
  for (std::int64_t i = 0; i < view.store.size(); ++i) {
    const auto& record = view.store.state(i);
    if (record.kind != io::StateKind::failed) continue;
    NotDone f{i, {}, {}, record.reason, excluded_by_rule(record.reason, config.dataset.overlength), false};
    if (data && i < data->size()) {
      f.id = data->id(i);
      f.text = data->note(i);
    }
    const auto line = std::find_if(state.failed.begin(), state.failed.end(), [&](const auto& l) { return l.sample == i; });
    if (line != state.failed.end()) {
      if (f.id.empty()) f.id = line->id;
      if (!line->text.empty()) f.text = line->text;
    }
    f.decided = decisions.samples.contains(i) || (!f.id.empty() && decisions.ids.contains(f.id));
    view.excluded += f.excluded ? 1 : 0;
    view.failed.push_back(std::move(f));
  }
  return view;
}

std::string name_some(const std::vector<NotDone>& samples, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, samples.size()); ++i)
    out += fmt::format("{}{} ({})", i == 0 ? "" : ", ",
                       samples[i].id.empty() ? fmt::format("#{}", samples[i].sample) : samples[i].id,
                       io::reason_name(samples[i].reason));
  if (samples.size() > most) out += fmt::format(" and {} more", samples.size() - most);
  return out;
}

std::string accept_command(const config::Config& config, const std::vector<NotDone>& samples) {
  std::string ids;
  bool nameable = samples.size() <= 20;  // an id with a comma cannot stand in the list
  for (const auto& s : samples) {
    nameable = nameable && !s.id.empty() && s.id.find(',') == std::string::npos;
    ids += (ids.empty() ? "" : ",") + s.id;
  }
  return fmt::format("aerie accept-missing {} {} --reason TEXT", shell_word(config.run_dir.string()),
                     nameable ? "--ids " + shell_word(ids) : std::string("--all-failed"));
}

}  // namespace aerie::apps
