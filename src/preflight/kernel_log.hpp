// SPDX-License-Identifier: Apache-2.0
// NVIDIA's Xid errors in the kernel log, which holds what happened since the boot.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace aerie::preflight {

struct Xid {
  std::string pci_bus_id;  // "0000:18:00"
  int number = 0;
  double age_s = 0;
  std::string text;  // the rest of the line
};
struct XidLog {
  bool readable = false;
  std::string why_not;
  std::vector<Xid> xids;  // oldest first
};
/// `path`: /dev/kmsg, or a file with lines as it gives them. Never blocks.
XidLog read_xids(const std::filesystem::path& path);

/// NVIDIA's own table: program: the application's mistake; watch: may be hardware; reset: the GPU works no more until it is
/// reset.
enum class Seriousness { program, watch, reset };
Seriousness seriousness(int xid);

}  // namespace aerie::preflight
