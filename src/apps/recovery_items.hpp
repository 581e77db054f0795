// SPDX-License-Identifier: Apache-2.0
// The four to-do items of a recovery. `aerie recover` opens them all and closes each when its evidence is there; the last one,
// the work that was missing, is closed by the program that does it.
#pragma once
#include <string_view>

#include <aerie/report/ledger.hpp>

namespace aerie::apps {

inline constexpr std::string_view item_assess = "assess: what survived",
                                  item_clear = "clear: end what dead attempts left running",
                                  item_verify = "verify: read what survived", item_resume = "resume: do what is missing";

void open_items(report::Ledger& ledger);
/// `evidence` stands in the item's line; it must not be empty.
void close_item(report::Ledger& ledger, std::string_view item, const base::Json& evidence);
/// The plan: what is missing, in which phase. The item stays open.
void plan_item(report::Ledger& ledger, report::Phase phase, const base::Json& plan);
/// Closes the resume item if one is open that was planned for this phase.
void close_resume(report::Ledger& ledger, report::Phase phase, const base::Json& evidence);

}  // namespace aerie::apps
