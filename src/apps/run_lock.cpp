// SPDX-License-Identifier: Apache-2.0
#include "run_lock.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>

#include <fcntl.h>
#include <fmt/format.h>

namespace aerie::apps {

std::string holder_text(const std::string& program) {
  const auto self = base::this_process();
  return fmt::format("{}, {}host {}, {}", program, self.job.empty() ? "" : fmt::format("job {}, ", self.job), self.host,
                     base::pid_text(self));
}

std::optional<base::FileLock> lock_run(const config::Config& config, base::FileLock::Mode mode, const std::string& program) {
  if (config.run.locks == "none") return std::nullopt;
  const auto path = config.run_dir / "run.lock";
  const auto text = holder_text(program);
  auto lock = base::FileLock::try_acquire(path, mode, text);
  if (!lock) {
    auto holder = base::FileLock::holder(path);
    if (holder.empty()) holder = "another program";
    throw base::RefusedError(fmt::format("{} is in use by {}", config.run_dir.string(), holder),
                             "wait until it ends, or end it; where file locks do not work set run.locks = \"none\"");
  }
  if (mode == base::FileLock::Mode::shared) {  // for people: the newest of the sharers
    const auto file = base::open_file(path, O_WRONLY | O_TRUNC);
    base::pwrite_full(file, std::as_bytes(std::span<const char>(text)), 0);
  }
  return lock;
}

}  // namespace aerie::apps
