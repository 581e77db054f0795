// SPDX-License-Identifier: Apache-2.0
// Edit distance (Levenshtein). The nearest of several words: config.hpp.
#pragma once
#include <cstddef>
#include <string_view>

namespace aerie::config {
std::size_t edit_distance(std::string_view a, std::string_view b);
}  // namespace aerie::config
