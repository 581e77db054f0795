// SPDX-License-Identifier: Apache-2.0
#include "read_rate.hpp"

namespace aerie::apps {
namespace {
using base::Json;

Json member(const Json& object, const char* key) { return object.is_object() ? object.value(key, Json{}) : Json{}; }
double rate_in(const Json& evidence) {
  const auto bytes = member(evidence, "bytes_hashed"), seconds = member(evidence, "seconds");
  if (!bytes.is_number() || !seconds.is_number() || seconds.get<double>() <= 0) return 0;
  return bytes.get<double>() / seconds.get<double>();
}
}  // namespace

double last_read_rate(const std::vector<Json>& ledger) {
  for (auto line = ledger.rbegin(); line != ledger.rend(); ++line)
    // Of a phase, of an evidence line, of a to-do item that is done.
    for (const auto& evidence :
         {member(*line, "evidence"), member(*line, "details"), member(member(*line, "details"), "evidence")})
      if (const auto rate = rate_in(evidence); rate > 0) return rate;
  return 0;
}

}  // namespace aerie::apps
