// SPDX-License-Identifier: Apache-2.0
#include <aerie/node/resources.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/resource.h>
#include <sys/statvfs.h>

namespace aerie::node {
namespace {
namespace fs = std::filesystem;

/// The number behind `key` ("MemAvailable:") in a file of lines "key number ...".
std::optional<std::int64_t> named_number(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}
/// A file that holds one number; nothing for "max".
std::optional<std::int64_t> number(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

/// What one memory controller still gives: pages of files count as free, they are dropped before anybody is killed.
std::optional<std::int64_t> left_in(const fs::path& limit, const fs::path& usage, const fs::path& stat,
                                    const std::string& cached) {
  const auto most = number(limit), used = number(usage);
  if (!most || !used) return std::nullopt;
  return std::max(std::int64_t{0}, *most - *used + std::min(*used, named_number(stat, cached).value_or(0)));
}

/// The least over this process's cgroup and those above it, whose limits hold for it too. Version 2, and the memory controller of
/// version 1.
std::optional<std::int64_t> left_in_cgroups(const fs::path& root) {
  std::optional<std::int64_t> least;
  const auto take = [&](std::optional<std::int64_t> left) {
    if (left) least = std::min(least.value_or(unlimited), *left);
  };
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/a/b", "7:memory:/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty(), v1 = controllers == "memory";
    if (!v1 && !v2) continue;
    const auto mount = root / (v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    for (auto group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      const auto dir = mount / group;
      take(v2 ? left_in(dir / "memory.max", dir / "memory.current", dir / "memory.stat", "file")
              : left_in(dir / "memory.limit_in_bytes", dir / "memory.usage_in_bytes", dir / "memory.stat", "total_cache"));
      if (group.empty()) break;
    }
  }
  return least;
}

std::optional<std::int64_t> free_in(const fs::path& dir) {
  struct statvfs v {};
  if (::statvfs(dir.c_str(), &v) != 0) return std::nullopt;
  return static_cast<std::int64_t>(v.f_bavail) * static_cast<std::int64_t>(v.f_frsize);
}
}  // namespace

Resources look_at_resources(const fs::path& root) {
  Resources r;
  const auto kib = [&](const char* key) {
    auto n = named_number(root / "proc/meminfo", key);
    if (n) *n *= 1024;
    return n;
  };
  r.memory_total = kib("MemTotal:");
  r.memory_available = kib("MemAvailable:");
  if (const auto left = left_in_cgroups(root)) r.memory_available = std::min(r.memory_available.value_or(unlimited), *left);
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    r.pinned_limit = limit.rlim_cur == RLIM_INFINITY ? unlimited : static_cast<std::int64_t>(limit.rlim_cur);
  r.tmp_free = free_in(root / "tmp");
  r.shm_free = free_in(root / "dev/shm");
  return r;
}

}  // namespace aerie::node
