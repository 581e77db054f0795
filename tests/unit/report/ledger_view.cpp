// SPDX-License-Identifier: Apache-2.0
// The ledger for people, and following it while it grows, torn lines included.
#include <aerie/report/ledger_view.hpp>

#include <fstream>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/report/ledger.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace report = aerie::report;
using base::Json;

namespace {
std::string last(const aerie::test::TempDir& run) { return report::format_ledger_line(report::Ledger(run.path()).read().back()); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
void add(const std::filesystem::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }
}  // namespace

TEST(LedgerView, OneLineSaysWhatHappened) {
  aerie::test::TempDir run;
  report::Ledger ledger(run.path());
  ledger.attempt_begin("aerie-train", {{"ranks", 4}});
  EXPECT_TRUE(has(last(run), "aerie-train begins on ")) << last(run);
  EXPECT_TRUE(has(last(run), ", 4 ranks")) << last(run);
  ledger.attempt_end(1, "aerie-train", 75, "signal USR2\nand more");
  EXPECT_TRUE(has(last(run), "  attempt         1 aerie-train ends 75 (stopped): signal USR2 and more")) << last(run);
  ledger.phase(report::Phase::extract, report::PhaseState::complete,
               {{"done", 300}, {"hash", "sha256:" + std::string(64, 'a')}, {"by_reason", {{"NONFINITE", 2}}}});
  EXPECT_TRUE(has(last(run), "  phase         extract complete: by_reason NONFINITE 2, done 300, hash sha256:aaaaaaaaaaaa.."))
      << last(run);
  ledger.todo("mend part 3", "high", "open");
  EXPECT_TRUE(has(last(run), "  todo          [high] mend part 3 (open)")) << last(run);
  ledger.sample_failed(7, "conv-7", "NONFINITE", "layer 3");
  EXPECT_TRUE(has(last(run), "conv-7 (sample 7): NONFINITE: layer 3")) << last(run);
  ledger.decision("accept-missing", {{"ids", {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}, {"reason", "known"}});
  EXPECT_TRUE(has(last(run), "accept-missing: ids [a, b, c, d, e, f, g, h and 2 more], reason known")) << last(run);
  ledger.submitted({{"jobs", {{{"phase", "extract"}, {"job", "41"}}, {{"phase", "train"}, {"job", "42"}}}}, {"array", 0}});
  EXPECT_TRUE(has(last(run), "extract 41, train 42")) << last(run);
  ledger.submitted({{"job", "50"}, {"replaces", "42"}});
  EXPECT_TRUE(has(last(run), "job 50 in place of 42")) << last(run);
  ledger.checkpoint_published(40, "checkpoints/step-00000040", "sha256:cd");
  EXPECT_TRUE(has(last(run), "step 40 checkpoints/step-00000040")) << last(run);
  for (const auto& line : ledger.read()) EXPECT_FALSE(has(report::format_ledger_line(line), "\n")) << line;
  // What a later version or a hand wrote is shown, not refused.
  EXPECT_TRUE(has(report::format_ledger_line({{"kind", "moon"}, {"phase", 3}}), "phase 3"));
  for (const auto& odd : std::vector<Json>{3,
                                           nullptr,
                                           Json::object(),
                                           {{"kind", 3}},
                                           {{"kind", "phase"}},
                                           {{"kind", "attempt"}},
                                           {{"kind", "submit"}},
                                           {{"kind", "todo"}},
                                           {{"kind", "sample-failed"}}})
    EXPECT_NO_THROW(report::format_ledger_line(odd)) << odd;
}

TEST(LedgerView, KindsAreThoseDocumented) {
  std::set<std::string> documented;
  std::ifstream in(std::string(AERIE_SOURCE_DIR) + "/docs/reference/ledger.md");
  const std::regex row("^\\| `([a-z-]+)`(, `event: \"[a-z]+\"`)? \\|.*");
  for (std::string line; std::getline(in, line);)
    if (std::smatch m; std::regex_match(line, m, row)) documented.insert(m[1]);
  EXPECT_EQ(std::set<std::string>(report::ledger_kinds().begin(), report::ledger_kinds().end()), documented);
}

TEST(LedgerTail, ReadsWhatIsNewOnce) {
  aerie::test::TempDir run;
  const auto file = run / "ledger.jsonl";
  report::LedgerTail tail(file);
  EXPECT_THROW(tail.read(), base::MissingInputError);
  add(file, "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(tail.read(), (std::vector<Json>{{{"n", 1}}, {{"n", 2}}}));
  EXPECT_TRUE(tail.read().empty());
  add(file, "\n{\"n\":3}\n{\"n\"");  // the beginning of a line waits
  EXPECT_EQ(tail.read(), (std::vector<Json>{{{"n", 3}}}));
  add(file, ":4}");
  EXPECT_TRUE(tail.read().empty());
  add(file, "\n");
  EXPECT_EQ(tail.read(), (std::vector<Json>{{{"n", 4}}}));
  add(file, "{\"torn\":");  // by a power cut; the next append closes it off
  EXPECT_TRUE(tail.read().empty());
  add(file, "\n{\"n\":5}\n");
  EXPECT_EQ(tail.read(), (std::vector<Json>{{{"n", 5}}}));
  std::ofstream(file) << "{\"n\":6}\n";  // another file by now
  EXPECT_EQ(tail.read(), (std::vector<Json>{{{"n", 6}}}));
}
