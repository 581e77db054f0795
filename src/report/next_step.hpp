// SPDX-License-Identifier: Apache-2.0
// The next command for a person to run, chosen from the parts of a status.
#pragma once
#include <filesystem>

#include <aerie/base/json.hpp>

namespace aerie::report {

/// {"command", "why"}; "command" is empty when nothing is left to do. `status` holds everything but "next".
base::Json next_step(const std::filesystem::path& run, const base::Json& status);

}  // namespace aerie::report
