// SPDX-License-Identifier: Apache-2.0
// Who started a process, by the names that systemd, container engines and Slurm give their control groups.
#pragma once
#include <string>
#include <string_view>

namespace aerie::node {

struct Cgroup {
  std::string path, unit, container, job;  // as in Process; empty: none
};
/// `text`: /proc/PID/cgroup, of version 1 or 2.
Cgroup parse_cgroup(std::string_view text);

}  // namespace aerie::node
