// SPDX-License-Identifier: Apache-2.0
// RoPE settings to and from config.json; shared by targets and drafters.
#pragma once
#include <string>

#include <aerie/base/json.hpp>
#include <aerie/interchange/target_config.hpp>

namespace aerie::interchange {

/// Reads rope_scaling, rope_parameters and rope_theta with transformers' precedence. Throws DataError naming `origin` and the
/// key.
RopeConfig read_rope(const base::Json& config, std::int64_t max_position_embeddings, const std::string& origin);

/// The published spelling: null for plain RoPE, else the dictionary (rope_theta stands beside it, not in it).
base::Json rope_scaling_json(const RopeConfig& rope);

}  // namespace aerie::interchange
