// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/status.hpp>

namespace aerie::report {

StatusFile::StatusFile(const std::filesystem::path& run, std::int64_t attempt, double interval_s)
    : path_(run / "status.json"), interval_s_(interval_s) {
  const auto self = base::this_process();
  writer_ = {{"attempt", attempt},
             {"process",
              {{"host", self.host},
               {"boot_id", self.boot_id},
               {"pid_namespace", self.pid_namespace},
               {"pid", self.pid},
               {"start_ticks", self.start_ticks}}}};
}

void StatusFile::update(const base::Json& snapshot, bool force) {
  const auto now = std::chrono::steady_clock::now();
  const bool first = last_ == std::chrono::steady_clock::time_point{};
  if (!force && !first && std::chrono::duration<double>(now - last_).count() < interval_s_) return;
  last_ = now;
  base::Json out = snapshot;
  out.update(writer_);
  out["updated"] = base::utc_now();
  try {
    base::publish_text(path_, out.dump(1, ' ', false, base::Json::error_handler_t::replace) + "\n", false);
  } catch (const base::IoError& e) {
    base::log_warning(std::string("status: ") + e.what());
  }
}

}  // namespace aerie::report
