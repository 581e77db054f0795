// SPDX-License-Identifier: Apache-2.0
// The run's lock: RUN/run.lock. Programs that need the run alone hold it exclusively; several extract jobs share it.
#pragma once
#include <optional>
#include <string>

#include <aerie/base/file.hpp>
#include <aerie/config/config.hpp>

namespace aerie::apps {

/// Nothing when run.locks = "none". Throws RefusedError naming the holder (program, job, host, pid) when somebody else holds it.
std::optional<base::FileLock> lock_run(const config::Config& config, base::FileLock::Mode mode, const std::string& program);

/// "aerie-train, job 123, host gpu07, pid 4711"
std::string holder_text(const std::string& program);

}  // namespace aerie::apps
