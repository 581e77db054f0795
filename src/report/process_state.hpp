// SPDX-License-Identifier: Apache-2.0
// Is the process of an attempt still alive, as far as this host can tell? And times as the ledger writes them.
#pragma once
#include <optional>
#include <string>

#include <aerie/report/ledger.hpp>

namespace aerie::report {

enum class Life { alive, dead, elsewhere };  // elsewhere: it ran on another host, nothing can be said
Life life_of(const AttemptRecord& attempt);

/// Seconds since 1970 of "2026-01-31T12:00:00.123Z"; nothing for other texts.
std::optional<double> parse_utc(const std::string& text);

}  // namespace aerie::report
