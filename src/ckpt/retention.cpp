// SPDX-License-Identifier: Apache-2.0
// Deletion of checkpoints. A directory first loses its name (rename to .old, fsync of the parent), then its content, so that a
// kill in between never leaves half a checkpoint under a published name.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/ckpt/checkpoint.hpp>

#include <algorithm>

#include "names.hpp"

namespace aerie::ckpt {
namespace {
bool opens(const std::filesystem::path& dir) {
  try {
    open(dir);
    return true;
  } catch (const base::Error&) {  // damaged or unreadable: never counted on, never deleted here
    return false;
  }
}
}  // namespace

void remove_leftovers(const std::filesystem::path& root) {
  for (const auto& entry : list_entries(root))
    if (entry.kind == EntryKind::temporary || entry.kind == EntryKind::old) remove_tree(entry.path);
}

void apply_retention(const std::filesystem::path& root, std::int64_t keep, std::int64_t keep_every, std::int64_t loaded_step) {
  remove_leftovers(root);
  keep = std::max<std::int64_t>(keep, 2);  // so the newest two that open always stay
  std::vector<Entry> good;
  for (auto& entry : list_entries(root))
    if (entry.kind == EntryKind::published && opens(entry.path)) good.push_back(std::move(entry));
  const auto n = static_cast<std::int64_t>(good.size());
  for (std::int64_t i = 0; i < n - keep; ++i) {
    const auto& entry = good[static_cast<std::size_t>(i)];
    if (entry.step == loaded_step || (keep_every > 0 && entry.step % keep_every == 0)) continue;
    const std::filesystem::path old = entry.path.string() + ".old";
    base::rename_durable(entry.path, old);
    pass_fault_point("ckpt.retention");
    remove_tree(old);
  }
}

}  // namespace aerie::ckpt
