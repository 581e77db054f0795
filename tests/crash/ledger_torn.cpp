// SPDX-License-Identifier: Apache-2.0
// A ledger whose last line was cut at any byte, by a kill or by a power cut that left zeros: the line is left out with a warning,
// and the next one stands alone.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <aerie/base/file.hpp>
#include <aerie/report/ledger.hpp>

#include "temp_dir.hpp"

namespace aerie::crash {
namespace {

using report::Ledger;

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::remove(path);
  const auto f = base::open_file(path, O_WRONLY | O_CREAT);
  base::write_full(f, std::as_bytes(std::span(text)));
}

TEST(LedgerTorn, AtAnyByte) {
  const test::TempDir dir;
  Ledger ledger(dir.path());
  ledger.sample_failed(1, "a", "NONFINITE", "layer 3");
  ledger.evidence("store", {{"text", "quotes \" and {[ \xc3\xa4 \\ "}});
  const auto whole = base::read_text(ledger.path());
  ledger.decision("accept-missing", {{"ids", {"a", "b"}}, {"reason", "nested {\"x\": [1]}"}, {"by", "someone"}});
  const auto all = base::read_text(ledger.path());
  ASSERT_EQ(ledger.read().size(), 3U);
  for (const bool zeros : {false, true})
    for (auto length = whole.size() + 1; length < all.size(); ++length) {
      const auto torn = all.substr(0, length) + (zeros ? std::string(all.size() - length, '\0') : "");
      write_file(ledger.path(), torn);
      testing::internal::CaptureStderr();
      const auto lines = ledger.read();
      const auto said = testing::internal::GetCapturedStderr();
      ASSERT_EQ(lines.size(), 2U) << length;
      EXPECT_NE(said.find("ledger.jsonl:3: the last line is cut short"), std::string::npos) << length << ": " << said;
      ledger.sample_failed(2, "b", "TARGET", "after");
      ledger.sample_failed(3, "c", "TARGET", "after that");
      const auto after = ledger.read();
      // What lacked its newline alone was whole: closed off, it counts.
      ASSERT_EQ(after.size(), length == all.size() - 1 ? 5U : 4U) << length;
      EXPECT_EQ(after[0], lines[0]);
      EXPECT_EQ(after[1], lines[1]);
      EXPECT_EQ(after[after.size() - 2].at("sample"), 2);
      EXPECT_EQ(after.back().at("sample"), 3);
    }
}

}  // namespace
}  // namespace aerie::crash
