// SPDX-License-Identifier: Apache-2.0
// The store of a run as people ask about it: counts, and each sample that is not done for good with its id, reason and decision.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <aerie/config/config.hpp>
#include <aerie/io/store.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::apps {

struct NotDone {
  std::int64_t sample = 0;
  std::string id, text;
  io::FailReason reason = io::FailReason::none;
  bool excluded = false;  // by rule: needs no decision
  bool decided = false;   // an accept-missing decision covers this failure
  bool recorded = false;  // the ledger knows it, with this reason
};
struct StoreView {
  io::Store store;
  io::Counts counts;
  std::vector<NotDone> failed;  // excluded ones too
  std::int64_t excluded = 0;
  std::vector<NotDone> undecided() const;
};
/// Nothing when there is no store yet. Ids come from the dataset, texts and decisions from `state`, the ledger's.
std::optional<StoreView> view_store(const config::Config& config, const report::RunState& state);
std::optional<StoreView> view_store(const config::Config& config);

/// Throws DataError unless every sample is done, excluded by rule or decided: names the samples, and the command that goes on
/// with them or decides. What every phase asks that may become complete with the store behind it.
void demand_settled(const config::Config& config, const StoreView& view);

/// Equal for two stores in which the same samples are done, with the same bytes, and the same failed, for the same reasons.
std::string store_state_hash(const io::Store& store);

/// Samples that extraction has settled so far: done, or failed at extraction (not those that planning left out). 0 without a
/// store; nothing when it cannot be told: a part was set aside, and extraction has yet to make it again.
std::optional<std::int64_t> samples_settled(const config::Config& config);
/// The same of counts at hand.
std::int64_t samples_settled(const io::Counts& counts);

/// "a, b, c and 12 more": at most `most` names.
std::string name_some(const std::vector<NotDone>& samples, std::size_t most = 10);
/// The command that decides about these samples.
std::string accept_command(const config::Config& config, const std::vector<NotDone>& samples);

}  // namespace aerie::apps
