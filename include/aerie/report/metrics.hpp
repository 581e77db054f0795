// SPDX-License-Identifier: Apache-2.0
// RUN/metrics.jsonl: one JSON object per training step or evaluation. On resume lines past the checkpoint's high-water mark are
// cut, so that no step appears twice.
#pragma once
#include <cstdint>
#include <filesystem>

#include <aerie/base/file.hpp>
#include <aerie/base/json.hpp>

namespace aerie::report {

class Metrics {
 public:
  /// Opens for appending; cuts lines whose "step" is above `last_step` (-1: all). Throws IoError.
  Metrics(const std::filesystem::path& path, std::int64_t last_step);
  void write(const base::Json& line);

 private:
  base::File file_;
};

}  // namespace aerie::report
