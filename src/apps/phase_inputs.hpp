// SPDX-License-Identifier: Apache-2.0
// Which part of the configuration a phase depends on, as a hash: recorded when it runs, compared when `aerie run` asks whether it
// is still done.
#pragma once
#include <string>

#include <aerie/config/config.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::apps {
std::string phase_inputs(const config::Config& config, report::Phase phase);
}  // namespace aerie::apps
