// SPDX-License-Identifier: Apache-2.0
// Phase prepare: runs aerie-prepare (Python) on the conversations and, when there are some, on those for evaluation.
#pragma once
#include <filesystem>

#include <aerie/config/config.hpp>

#include "child.hpp"

namespace aerie::apps {
/// The directory of this executable.
std::filesystem::path program_directory();
/// Returns the child's result, the first that is not 0; records the phase when all is done. Throws base::Error.
ChildResult prepare_datasets(const config::Config& config);
}  // namespace aerie::apps
