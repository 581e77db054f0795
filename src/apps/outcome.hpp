// SPDX-License-Identifier: Apache-2.0
// How a program ends: its code and, for an error, the one line that says why.
#pragma once
#include <functional>
#include <string>

namespace aerie::apps {

struct Outcome {
  int code = 0;
  std::string what, hint;  // of an error, or why it stopped
  bool failed() const { return code != 0 && code != 75; }
};
/// Runs `f` and turns what it throws into an outcome.
Outcome outcome_of(const std::function<int()>& f);

/// `error: rank 3 gpu07: <what> (<hint>)`, one line whatever `what` holds; without the rank part when `rank` is negative.
std::string error_line(const Outcome& outcome, int rank = -1, const std::string& host = {});

}  // namespace aerie::apps
