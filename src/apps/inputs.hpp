// SPDX-License-Identifier: Apache-2.0
// `--check`: every path that the configuration names.
#pragma once
#include <aerie/config/config.hpp>

namespace aerie::apps {
/// Throws ConfigError when target.path is not set, MissingInputError naming key and path when something is not there.
void check_paths(const config::Config& config);
}  // namespace aerie::apps
