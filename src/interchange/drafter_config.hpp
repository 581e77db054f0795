// SPDX-License-Identifier: Apache-2.0
// The reading half of a drafter's config.json; export_config is the writing half.
#pragma once
#include <string>

#include <aerie/interchange/drafter_layout.hpp>

namespace aerie::interchange {

struct DrafterConfig {
  DrafterShape shape;                                  // target_hidden_size 0 when the config does not say
  std::array<std::int32_t, 3> aux_layers{-1, -1, -1};  // input-of-layer; -1: not named
};

/// Throws DataError naming `origin` and the key when the config describes a network other than classic EAGLE-3, or another
/// format.
DrafterConfig parse_drafter_config(const base::Json& config, ExportFormat format, const std::string& origin);

}  // namespace aerie::interchange
