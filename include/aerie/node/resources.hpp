// SPDX-License-Identifier: Apache-2.0
// What this machine, and this process's share of it, has left: memory, memory that may be pinned, /tmp and /dev/shm.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

namespace aerie::node {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// Bytes; empty: not told.
struct Resources {
  std::optional<std::int64_t> memory_total;      // of the machine
  std::optional<std::int64_t> memory_available;  // without pushing anybody out; no more than the cgroups of this process leave it
  std::optional<std::int64_t> pinned_limit;      // RLIMIT_MEMLOCK, or `unlimited`
  std::optional<std::int64_t> tmp_free, shm_free;
};
/// `root` stands for / (tests put a tree of their own there). Never throws for what is missing.
Resources look_at_resources(const std::filesystem::path& root = "/");

}  // namespace aerie::node
