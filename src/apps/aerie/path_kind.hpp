// SPDX-License-Identifier: Apache-2.0
// What a path is, by its content: names prove nothing.
#pragma once
#include <filesystem>

namespace aerie::apps {

enum class PathKind { run, store, checkpoint, model, hdf5, safetensors };
/// Throws MissingInputError, and DataError when it is none of these.
PathKind recognise(const std::filesystem::path& path);
const char* kind_name(PathKind kind);

}  // namespace aerie::apps
