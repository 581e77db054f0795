// SPDX-License-Identifier: Apache-2.0
// Starts a program, passes signals on to it and waits for its end.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace aerie::apps {

struct ChildResult {
  int code = 0;        // exit code; 128 + signal when a signal ended it
  bool asked = false;  // a stop signal was passed on
};
struct ChildOptions {
  std::map<std::string, std::string> environment = {};  // set on top of this process's own
  /// The first TERM or INT goes on as USR2: mpirun kills its ranks a second after TERM, but passes USR2 on and lets them save. A
  /// second TERM or INT goes on as it is.
  bool soft_stop = false;
  /// Seconds until it gets TERM, and KILL 5 s later; 0: as long as it takes.
  double limit_s = 0;
  /// stdout and stderr are appended to this file; empty: they are this process's.
  std::filesystem::path output = {};
};
/// argv[0] is looked up in PATH unless it holds a slash. TERM, INT and USR2 are passed on. Throws MissingInputError when it
/// cannot start.
ChildResult run_child(const std::vector<std::string>& argv, const ChildOptions& options);

}  // namespace aerie::apps
