// SPDX-License-Identifier: Apache-2.0
#include "store_view.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/report/advice.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "shell_word.hpp"

namespace aerie::apps {
namespace {
bool excluded_by_rule(io::FailReason reason, const std::string& overlength) {
  return reason == io::FailReason::empty || reason == io::FailReason::no_loss ||
         (reason == io::FailReason::too_long && overlength == "skip");
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
std::optional<std::int64_t> samples_settled(const config::Config& config) {
  std::optional<std::int64_t> settled = 0;
  const auto error = base::capture([&] {
    if (io::Store::exists(config.store_dir())) settled = samples_settled(io::Store::open(config.store_dir()).counts());
  });
  return error ? std::nullopt : settled;
}

std::optional<StoreView> view_store(const config::Config& config) {
  return view_store(config, report::replay(report::Ledger(config.run_dir).read()));
}

std::optional<StoreView> view_store(const config::Config& config, const report::RunState& state) {
  if (!io::Store::exists(config.store_dir())) return std::nullopt;
  StoreView view{io::Store::open(config.store_dir()), {}, {}, 0};
  view.counts = view.store.counts();
  if (view.counts.failed == 0) return view;
  std::optional<dataset::Dataset> data;
  if (std::filesystem::exists(config.dataset_file())) data = dataset::Dataset::open(config.dataset_file());
  auto line = state.failed.begin();  // by sample, as the loop goes
  for (std::int64_t i = 0; i < view.store.size(); ++i) {
    const auto& record = view.store.state(i);
    if (record.kind != io::StateKind::failed) continue;
    NotDone f{i, {}, {}, record.reason, excluded_by_rule(record.reason, config.dataset.overlength)};
    if (data && i < data->size()) {
      f.id = data->id(i);
      f.text = data->note(i);
    }
    while (line != state.failed.end() && line->sample < i) ++line;
    if (line != state.failed.end() && line->sample == i) {
      if (f.id.empty()) f.id = line->id;
      if (!line->text.empty()) f.text = line->text;
      f.recorded = line->reason == io::reason_name(record.reason);
      f.decided = f.recorded && line->decided;  // a decision about another failure of it does not count
    }
    view.excluded += f.excluded ? 1 : 0;
    view.failed.push_back(std::move(f));
  }
  return view;
}

void demand_settled(const config::Config& config, const StoreView& view) {
  const auto run = shell_word(config.run_dir.string());
  if (view.counts.pending > 0)
    throw base::DataError(
        fmt::format("{}: {} of {} samples are missing", config.store_dir().string(), view.counts.pending, view.counts.total),
        fmt::format("`aerie run {} --from extract` goes on with them", run));
  const auto undecided = view.undecided();
  if (undecided.empty()) return;
  throw base::DataError(
      fmt::format("{} {} failed and nobody has decided about {}: {}", undecided.size(),
                  undecided.size() == 1 ? "sample" : "samples", undecided.size() == 1 ? "it" : "them", name_some(undecided, 20)),
      fmt::format("mend the data, or `{}`; then run again", accept_command(config, undecided)));
}

std::string store_state_hash(const io::Store& store) {
  std::vector<std::uint64_t> words;
  words.reserve(static_cast<std::size_t>(2 * store.size()));
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const auto& s = store.state(i);
    words.push_back(static_cast<std::uint64_t>(s.kind) | static_cast<std::uint64_t>(s.reason) << 8);
    words.push_back(s.kind == io::StateKind::done ? s.xxh3 : 0);
  }
  return base::xxh3_128_tagged(std::as_bytes(std::span(words)));
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
  std::vector<std::string> ids;
  for (const auto& s : samples) ids.push_back(s.id);
  return report::accept_missing_command(config.run_dir, ids);
}

}  // namespace aerie::apps
