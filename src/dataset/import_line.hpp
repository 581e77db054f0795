// SPDX-License-Identifier: Apache-2.0
// One line of pre-tokenised JSONL to one sample. Checks and their order are those of tools/aerie_prepare (layouts.py,
// prepare.py): both must give the same dataset_hash for the same input.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <aerie/dataset/dataset.hpp>

namespace aerie::dataset {

struct ImportedLine {
  std::string id;
  io::FailReason reject = io::FailReason::none;
  std::string note;  // why it was rejected (with `origin`, "file:line") or truncated
  bool truncated = false;
  Tokens tokens;  // empty when rejected
};
ImportedLine import_line(std::string_view text, const std::string& origin, const ImportOptions& options);

}  // namespace aerie::dataset
