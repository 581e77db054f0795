// SPDX-License-Identifier: Apache-2.0
// Names below RUN/checkpoints, in one place: step-00001200 (published), step-00001200.tmp.A (being written by attempt A),
// step-00001200.old (being deleted), step-00001200.bad[.N] (damaged, kept for people).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::ckpt {

std::string step_name(std::int64_t step);
std::string chunk_file_name(int rank);

enum class EntryKind { published, temporary, old, bad };
struct Entry {
  std::filesystem::path path;
  EntryKind kind = EntryKind::published;
  std::int64_t step = 0;
};
/// Nothing for names that are not ours.
std::optional<Entry> classify(const std::filesystem::path& path);
/// All directories below `root` with names of ours, by step, then name. A root that is not there is empty. Throws IoError.
std::vector<Entry> list_entries(const std::filesystem::path& root);

/// Renames to the first free of .bad, .bad.2, .bad.3 ... and syncs the parent. Returns the new path. Throws IoError.
std::filesystem::path rename_to_bad(const std::filesystem::path& dir);
/// Removes a tree. Throws IoError; a tree that is not there is fine.
void remove_tree(const std::filesystem::path& dir);

/// A fault point that may throw (tests only; see base/fault.hpp).
void pass_fault_point(const char* name);

}  // namespace aerie::ckpt
