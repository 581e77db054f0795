// SPDX-License-Identifier: Apache-2.0
#include "kernel_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <regex>

#include <fcntl.h>
#include <unistd.h>

#include <aerie/base/file.hpp>
#include <aerie/node/gpu.hpp>

namespace aerie::preflight {
namespace {
/// Everything that can be read without waiting. /dev/kmsg gives one record a read, and EPIPE where it has overwritten some.
std::string read_all(int fd) {
  std::string out;
  std::array<char, 8192> buffer{};
  for (;;) {
    const auto n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) out.append(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EPIPE && errno != EINTR)) return out;
  }
}
double uptime_s() {  // on the clock that the kernel stamps its log with
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
}  // namespace

XidLog read_xids(const std::filesystem::path& path) {
  XidLog log;
  const base::File file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), path);
  if (!file) {
    log.why_not = std::strerror(errno);
    return log;
  }
  log.readable = true;
  const auto text = read_all(file.fd());
  const double now = uptime_s();
  // "4,1234,5678901,-;NVRM: Xid (PCI:0000:18:00): 79, pid=77, GPU has fallen off the bus."; the third number is in microseconds.
  static const std::regex line(R"(\d+,\d+,(\d+),[^;]*;NVRM: Xid \((PCI:[0-9a-fA-F:]+)[^)]*\): (\d+)(?:, *)?([^\n]*))");
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    const auto& m = *at;
    log.xids.push_back({node::plain_pci_id(m[2].str()), std::stoi(m[3].str().substr(0, 6)),
                        std::max(0.0, now - std::stod(m[1].str()) / 1e6), m[4].str()});
  }
  return log;
}

Seriousness seriousness(int xid) {
  // Memory errors beyond repair, no spare row, fallen off the bus, its own processor dead, reset asked for.
  constexpr std::array reset{48, 62, 64, 79, 95, 119, 120, 140, 143, 154};
  constexpr std::array program{13, 31, 43, 45,
                               63, 68, 69, 92};  // 63: a row is replaced, which gpu-errors tells of; 92: many corrected errors
  if (std::find(reset.begin(), reset.end(), xid) != reset.end()) return Seriousness::reset;
  if (std::find(program.begin(), program.end(), xid) != program.end()) return Seriousness::program;
  return Seriousness::watch;
}

}  // namespace aerie::preflight
