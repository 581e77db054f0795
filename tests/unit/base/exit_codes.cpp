// SPDX-License-Identifier: Apache-2.0
// Exit codes: unique, complete, and word for word what docs/reference/exit-codes.md says.
#include <aerie/base/exit_codes.hpp>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <aerie/base/file.hpp>

namespace base = aerie::base;

namespace {
using Row = std::vector<std::string>;
/// Rows of the document's tables whose first cell is a number.
std::map<int, Row> documented() {
  std::map<int, Row> out;
  std::istringstream in(base::read_text(std::string(AERIE_SOURCE_DIR) + "/docs/reference/exit-codes.md"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    Row row;
    std::string cell;
    std::istringstream cells(line.substr(1));
    while (std::getline(cells, cell, '|')) {
      const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      row.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    if (row.size() < 5 || row[0].empty() || row[0].find_first_not_of("0123456789") != std::string::npos) continue;
    EXPECT_TRUE(out.emplace(std::stoi(row[0]), row).second) << row[0] << " is documented twice";
  }
  return out;
}
}  // namespace

TEST(ExitCodes, TableIsAscendingUniqueAndComplete) {
  std::vector<int> codes;
  for (const auto& row : base::exit_code_table()) codes.push_back(static_cast<int>(row.code));
  EXPECT_EQ(codes, (std::vector<int>{0, 2, 65, 66, 69, 70, 74, 75, 76, 78, 93}));
  std::set<std::string_view> names;
  for (const auto& row : base::exit_code_table()) names.insert(row.name);
  EXPECT_EQ(names.size(), codes.size());
}

TEST(ExitCodes, ExplainsItsOwnAndTheLaunchersAndNoOther) {
  std::set<int> known;
  for (int code = -1; code < 300; ++code)
    if (base::explain_exit(code)) known.insert(code);
  EXPECT_EQ(known, (std::set<int>{0, 1, 2, 65, 66, 69, 70, 74, 75, 76, 78, 93, 134, 137, 138, 139, 140, 143, 205}));
  EXPECT_EQ(base::explain_exit(75)->name, "stopped");
  EXPECT_EQ(base::explain_exit(137)->name, "launcher");
}

TEST(ExitCodes, DocumentSaysTheSame) {
  const auto rows = documented();
  std::set<int> codes;
  for (const auto& [code, row] : rows) codes.insert(code);
  EXPECT_EQ(codes, (std::set<int>{0, 1, 2, 65, 66, 69, 70, 74, 75, 76, 78, 93, 134, 137, 138, 139, 140, 143, 205}));
  for (const auto& [code, row] : rows) {
    const auto info = base::explain_exit(code);
    ASSERT_TRUE(info) << code;
    EXPECT_EQ(row[1], info->name) << code;
    EXPECT_EQ(row[2], info->meaning) << code;
    EXPECT_EQ(row[3], info->batch) << code;
    EXPECT_EQ(row[4], info->next) << code;
  }
}
