// SPDX-License-Identifier: Apache-2.0
// The table at the end of `aerie run`: samples, speed of each phase, acceptance before and after training, exports, next command.
#pragma once
#include <string>

#include <aerie/config/config.hpp>

namespace aerie::apps {
/// From the store, the ledger's evidence, eval.json and the export directories. What is not there is left out, never guessed.
std::string summary(const config::Config& config);
}  // namespace aerie::apps
