// SPDX-License-Identifier: Apache-2.0
// How fast this run's store was read when it was verified last.
#pragma once
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::apps {

/// Bytes per second of the newest record with `bytes_hashed` and `seconds`: phase verify, or a recovery. 0 when there is none.
double last_read_rate(const std::vector<base::Json>& ledger);

}  // namespace aerie::apps
