// SPDX-License-Identifier: Apache-2.0
// The ledger for people: one line an event, and following the file as it grows.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::report {

/// The kinds of line that docs/reference/ledger.md lists.
const std::vector<std::string>& ledger_kinds();

/// "2026-01-31T12:00:00.123Z  phase       extract complete: done 300, ...", without a newline. What the line lacks is left out; a
/// kind that is not known is shown with its plain values.
std::string format_ledger_line(const base::Json& line);

/// Reads a growing ledger: each byte once.
class LedgerTail {
 public:
  explicit LedgerTail(std::filesystem::path file) : file_(std::move(file)) {}
  /// The whole lines that came since the last call. The beginning of a line waits for its end. A whole line that is not JSON is a
  /// torn one that a later append closed off, or damage (`aerie status` tells which): it is warned about and passed over. A file
  /// that became shorter is another one and read from its start. Throws IoError.
  std::vector<base::Json> read();

 private:
  std::filesystem::path file_;
  std::int64_t offset_ = 0, lines_ = 0;
  std::string begun_;
};

}  // namespace aerie::report
