// SPDX-License-Identifier: Apache-2.0
#include <aerie/comm/agree.hpp>

#include <aerie/base/host.hpp>

#include <fmt/format.h>

namespace aerie::comm {

void agree(const Comm& comm, std::string_view phase, const std::optional<base::Error>& mine) {
  const std::int64_t failing = comm.min(mine ? comm.rank() : comm.size());
  if (failing == comm.size()) return;
  const int root = static_cast<int>(failing);
  const bool speaker = comm.rank() == root;
  const auto code = comm.broadcast(speaker ? static_cast<std::int64_t>(mine->code()) : 0, root);
  std::string text;
  if (speaker)
    text = comm.size() == 1 ? std::string(mine->what())
                            : fmt::format("{}: rank {} {}: {}", phase, root, base::host_name(), mine->what());
  text = comm.broadcast(text, root);
  const auto hint = comm.broadcast(speaker ? mine->hint() : std::string{}, root);
  throw base::Error(static_cast<base::ExitCode>(code), text, hint);
}

}  // namespace aerie::comm
