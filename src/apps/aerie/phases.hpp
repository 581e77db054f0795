// SPDX-License-Identifier: Apache-2.0
// The phases that `aerie run` walks through: whether one is still done, and the two that `aerie` does by itself.
#pragma once
#include <array>
#include <optional>
#include <string>

#include <aerie/config/config.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::apps {

inline constexpr std::array pipeline{report::Phase::prepare, report::Phase::extract, report::Phase::verify, report::Phase::vocab,
                                     report::Phase::train,   report::Phase::eval,    report::Phase::export_};

/// Throws ConfigError naming the nearest known phase.
report::Phase phase_named(const std::string& name);

/// Why `phase` must run; nothing when the ledger says complete, nothing it depends on was done later or is configured otherwise,
/// and what it made is still there. Throws nothing for damaged outputs: they are a reason.
std::optional<std::string> why_not_done(const config::Config& config, const report::RunState& state, report::Phase phase);

/// Phase vocab. Throws base::Error.
void choose_vocabulary(const config::Config& config);

/// Phase verify: every checksum of the store, then COMPLETE. Throws DataError when samples are missing, or failed without a
/// decision: names them and the command that decides.
void finalize_store(const config::Config& config);

}  // namespace aerie::apps
