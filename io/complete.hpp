// SPDX-License-Identifier: Apache-2.0
// The marker of a finished store, as verify and finalize see it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include <aerie/io/store.hpp>

namespace aerie::io {

base::Json counts_json(const Counts& counts);
std::filesystem::path complete_path(const std::filesystem::path& store);
/// Why COMPLETE does not hold; nothing when it does. `counts` may be null: then they are not compared.
std::optional<std::string> complete_marker_problem(const std::filesystem::path& store, const std::string& manifest_hash,
                                                   const Counts* counts);

}  // namespace aerie::io
