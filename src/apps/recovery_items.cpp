// SPDX-License-Identifier: Apache-2.0
#include "recovery_items.hpp"

#include <aerie/base/error.hpp>

#include <string>

namespace aerie::apps {
namespace {
constexpr const char* priority = "high";
}

void open_items(report::Ledger& ledger) {
  for (const auto item : {item_assess, item_clear, item_verify, item_resume}) ledger.todo(std::string(item), priority, "open");
}

void close_item(report::Ledger& ledger, std::string_view item, const base::Json& evidence) {
  base::expect(!evidence.empty(), "an item is done only with evidence");
  ledger.todo(std::string(item), priority, "done", {{"evidence", evidence}});
}

void plan_item(report::Ledger& ledger, report::Phase phase, const base::Json& plan) {
  ledger.todo(std::string(item_resume), priority, "open", {{"phase", report::phase_name(phase)}, {"plan", plan}});
}

void close_resume(report::Ledger& ledger, report::Phase phase, const base::Json& evidence) {
  for (const auto& item : report::replay(ledger.read()).todos) {
    if (item.value("content", "") != item_resume || item.value("status", "") != "open") continue;
    const base::Json details = item.value("details", base::Json::object());
    if (details.is_object() && details.value("phase", "") == report::phase_name(phase)) close_item(ledger, item_resume, evidence);
  }
}

}  // namespace aerie::apps
