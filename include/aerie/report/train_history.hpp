// SPDX-License-Identifier: Apache-2.0
// What the ledger tells a starting trainer beyond the guard: checkpoints that attempts failed with, whether the newest thing that
// happened is a decision to start afresh, and how long a save and a step took when last measured.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::report {

struct TrainHistory {
  /// Steps of checkpoints from which two attempts got nowhere: both failed while loading it, or both ended with the same code 65
  /// or 70 before their first new step. Attempts without an end line, or with 75, 76, 137 or 143, count neither way; an attempt
  /// that made a step from it, a reset-attempts and a fresh-start decision clear it.
  std::set<std::int64_t> avoid;
  bool published = false;              // a checkpoint was published since the newest fresh-start decision
  bool ever_published = false;         // ... or before it
  bool fresh_start = false;            // there is such a decision
  std::vector<std::string> set_aside;  // names of .bad directories at that decision
  double save_s = 0, step_s = 0;       // last measured; 0: never
};
/// Throws DataError when a line's field has a wrong type.
TrainHistory train_history(const std::vector<base::Json>& lines, const std::string& program = "aerie-train");

}  // namespace aerie::report
