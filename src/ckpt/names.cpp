// SPDX-License-Identifier: Apache-2.0
#include "names.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/file.hpp>

#include <algorithm>
#include <charconv>
#include <tuple>

#include <fmt/format.h>

namespace aerie::ckpt {
namespace fs = std::filesystem;

std::string step_name(std::int64_t step) { return fmt::format("step-{:08}", step); }
std::string chunk_file_name(int rank) { return fmt::format("chunk-{:04}.bin", rank); }

std::optional<Entry> classify(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto dot = std::min(name.find('.'), name.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + dot, step);
  if (error != std::errc{} || end != name.data() + dot || step < 0 || step_name(step) != name.substr(0, dot)) return std::nullopt;
  const std::string_view suffix = std::string_view(name).substr(dot);
  if (suffix.empty()) return Entry{path, EntryKind::published, step};
  if (suffix.starts_with(".tmp.")) return Entry{path, EntryKind::temporary, step};
  if (suffix == ".old") return Entry{path, EntryKind::old, step};
  if (suffix == ".bad" || suffix.starts_with(".bad.")) return Entry{path, EntryKind::bad, step};
  return std::nullopt;
}

std::vector<Entry> list_entries(const fs::path& root) {
  std::vector<Entry> out;
  std::error_code error;
  fs::directory_iterator it(root, error);
  if (error == std::errc::no_such_file_or_directory) return out;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) continue;
    if (auto entry = classify(it->path())) out.push_back(std::move(*entry));
  }
  if (error) base::throw_errno(error.value(), "list " + root.string());
  std::sort(out.begin(), out.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.step, a.path) < std::tie(b.step, b.path); });
  return out;
}

fs::path rename_to_bad(const fs::path& dir) {
  for (int n = 1;; ++n) {
    const fs::path to = dir.string() + (n == 1 ? std::string(".bad") : fmt::format(".bad.{}", n));
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(to, ignored))) continue;
    base::rename_durable(dir, to);
    return to;
  }
}

void remove_tree(const fs::path& dir) {
  std::error_code error;
  fs::remove_all(dir, error);
  if (error) base::throw_errno(error.value(), "remove " + dir.string());
}

void pass_fault_point(const char* name) {
  if (const int e = base::fault_point(name)) base::throw_errno(e, std::string("fault point ") + name);
}

}  // namespace aerie::ckpt
