// SPDX-License-Identifier: Apache-2.0
// Times as the ledger writes them.
#pragma once
#include <optional>
#include <string>

namespace aerie::report {

/// Seconds since 1970 of "2026-01-31T12:00:00.123Z"; nothing for other texts.
std::optional<double> parse_utc(const std::string& text);
/// The other way round.
std::string utc_text(double unix_s);

}  // namespace aerie::report
