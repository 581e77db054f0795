// SPDX-License-Identifier: Apache-2.0
// What this program was built from. Versions of libraries *loaded* are added by the modules that link them.
#pragma once
#include <string>

namespace aerie::base {
std::string version();       // "0.1.0"
std::string git_revision();  // "1a2b3c4d5e6f" or "unknown", "-dirty" appended
std::string compiler();
std::string producer();  // "aerie 0.1.0 (1a2b3c4d5e6f)"
}  // namespace aerie::base
