// SPDX-License-Identifier: Apache-2.0
// status, verify, inspect and accept-missing on small made-up runs.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "fixture.hpp"

namespace {
using namespace aerie;
using test::aerie;

class Commands : public testing::Test {
 protected:
  test::TempDir dir;
  test::Run run{dir};
  std::string path(const std::string& name) const { return (run.path() / name).string(); }
};

TEST_F(Commands, status_of_nothing_and_of_a_fresh_run) {
  const auto none = aerie("status " + (dir / "none").string());
  EXPECT_EQ(none.code, 66);
  EXPECT_EQ(none.err.rfind("error: ", 0), 0U);
  const auto fresh = aerie("status --json " + run.name());
  ASSERT_EQ(fresh.code, 0) << fresh.err;
  EXPECT_TRUE(fresh.json().at("samples").is_null());
  EXPECT_EQ(fresh.json().at("phases").at(0).at("state"), "pending");
}

TEST_F(Commands, status_counts_the_store) {
  run.make_store({0, 1}, {4});
  run.make_checkpoint(12);
  const auto s = aerie("status --json " + run.name());
  ASSERT_EQ(s.code, 0) << s.err;
  const auto samples = s.json().at("samples");
  EXPECT_EQ(samples.at("total"), 6);
  EXPECT_EQ(samples.at("done"), 2);
  EXPECT_EQ(samples.at("failed"), 1);
  EXPECT_EQ(samples.at("excluded"), 1);
  EXPECT_EQ(samples.at("missing"), 2);
  ASSERT_EQ(samples.at("failed_samples").size(), 1U);
  EXPECT_EQ(samples.at("failed_samples").at(0).at("id"), "s4");
  EXPECT_EQ(samples.at("failed_samples").at(0).at("reason"), "NONFINITE");
  EXPECT_EQ(s.json().at("checkpoint").at("step"), 12);
  EXPECT_NE(aerie("status " + run.name()).out.find("s4"), std::string::npos);
}

TEST_F(Commands, status_survives_a_broken_configuration) {
  test::write(run.path() / "aerie.toml", "[train\n");
  const auto s = aerie("status --json " + run.name());
  EXPECT_EQ(s.code, 0);
  EXPECT_NE(s.err.find("aerie.toml:1"), std::string::npos) << s.err;
}

TEST_F(Commands, verify_finds_a_flipped_byte_only_with_full) {
  run.make_store({0, 1, 2, 4, 5});
  EXPECT_EQ(aerie("verify " + run.name()).code, 0) << aerie("verify " + run.name()).out;
  EXPECT_EQ(aerie("verify --full " + path("store")).code, 0) << aerie("verify --full " + path("store")).out;
  // The first row of aux of sample 0: 0x3f80 little-endian, 48 times over.
  const auto part = run.path() / "store/parts/part-00000.h5";
  const auto at = test::read(part).find(std::string("\x80\x3f\x80\x3f\x80\x3f\x80\x3f", 8));
  ASSERT_NE(at, std::string::npos);
  test::flip_byte(part, static_cast<std::int64_t>(at));
  EXPECT_EQ(aerie("verify --fast " + path("store")).code, 0);
  const auto full = aerie("verify --full --json " + path("store"));
  EXPECT_EQ(full.code, 65);
  ASSERT_EQ(full.json().at("findings").size(), 1U);
  EXPECT_EQ(full.json().at("findings").at(0).at("sample"), 0);
  EXPECT_EQ(full.json().at("exit_code"), 65);
  EXPECT_EQ(aerie("verify --full " + run.name()).code, 65);
}

/// Details of the newest evidence line of this name.
base::Json newest(const std::vector<base::Json>& lines, const std::string& what) {
  for (auto it = lines.rbegin(); it != lines.rend(); ++it)
    if (it->value("kind", "") == "evidence" && it->value("what", "") == what) return it->at("details");
  return {};
}

TEST_F(Commands, recover_sets_back_what_is_damaged_and_nothing_else) {
  run.make_store({0, 1, 2, 4, 5});
  const auto clean = aerie("recover " + run.name());
  EXPECT_EQ(clean.code, 0) << clean.err;
  EXPECT_NE(clean.out.find("5 of 6 samples verified, 0 bad, 1 failed, 0 missing"), std::string::npos) << clean.out;
  const auto part = run.path() / "store/parts/part-00000.h5";
  const auto at = test::read(part).find(std::string("\x80\x3f\x80\x3f\x80\x3f\x80\x3f", 8));
  ASSERT_NE(at, std::string::npos);
  test::flip_byte(part, static_cast<std::int64_t>(at));
  const auto damaged = test::read(part);
  const auto dry = aerie("recover --dry-run " + run.name());
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("5 of 6 samples done by their records, 0 bad, 1 failed, 0 missing"), std::string::npos)
      << "a dry run reads no checksums: " << dry.out;
  EXPECT_NE(dry.out.find("--dry-run: checksums not read; "), std::string::npos) << dry.out;
  EXPECT_NE(dry.out.find(" to read, about "), std::string::npos) << "the recovery before has told the rate: " << dry.out;
  EXPECT_EQ(test::read(part), damaged) << "a dry run changes nothing";
  EXPECT_EQ(aerie("recover " + run.name()).code, 0);
  auto s = aerie("status --json " + run.name()).json().at("samples");
  EXPECT_EQ(s.at("done"), 4);
  EXPECT_EQ(s.at("missing"), 1);
  EXPECT_EQ(aerie("verify --full " + path("store")).code, 0);
  EXPECT_EQ(newest(run.ledger(), "recover").at("reopened"), (base::Json{0}));
  EXPECT_EQ(newest(run.ledger(), "damage").at("samples"), (base::Json{0}));
  std::filesystem::remove(part);
  const auto gone = aerie("recover " + run.name());
  EXPECT_NE(gone.err.find("aerie recover --lost"), std::string::npos) << gone.err;
  EXPECT_EQ(gone.code, 66) << "perhaps a file system is not mounted";
  EXPECT_FALSE(std::filesystem::exists(part.string() + ".bad"));
  const auto lost = aerie("recover --lost " + run.name());
  EXPECT_EQ(lost.code, 0) << lost.err;
  EXPECT_TRUE(std::filesystem::exists(part.string() + ".bad"));
  test::write(run.path() / "store/manifest.json", "{");
  EXPECT_EQ(aerie("recover " + run.name()).code, 65);
}

TEST_F(Commands, recover_of_a_part_damaged_in_and_outside_its_rows) {
  run.make_store({0, 1, 2, 4, 5});
  const auto part = run.path() / "store/parts/part-00000.h5";
  const auto at = static_cast<std::int64_t>(test::read(part).find(std::string("\x80\x3f\x80\x3f\x80\x3f\x80\x3f", 8)));
  test::flip_byte(part, at);      // a row
  test::flip_byte(part, at - 1);  // and the padding before the rows
  const auto e = aerie("recover " + run.name());
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("0 of 6 samples verified, 5 bad"), std::string::npos) << e.out;
  EXPECT_TRUE(std::filesystem::exists(part.string() + ".bad"));
  EXPECT_EQ(newest(run.ledger(), "recover").at("parts_set_aside"), (base::Json{0}));
}

TEST_F(Commands, verify_names_a_missing_part) {
  run.make_store({0});
  std::filesystem::remove(run.path() / "store/parts/part-00000.h5");
  const auto v = aerie("verify " + path("store"));
  EXPECT_EQ(v.code, 66);
  EXPECT_NE(v.out.find("part-00000.h5"), std::string::npos) << v.out;
}

TEST_F(Commands, verify_checkpoints) {
  const auto step = run.make_checkpoint(12);
  EXPECT_EQ(aerie("verify --full " + step.string()).code, 0);
  test::flip_byte(step / "chunk-0000.bin", 5);
  EXPECT_EQ(aerie("verify --fast " + step.string()).code, 0);
  const auto full = aerie("verify --full " + step.string());
  EXPECT_EQ(full.code, 65);
  EXPECT_NE(full.out.find("chunk-0000.bin"), std::string::npos) << full.out;
  EXPECT_EQ(aerie("verify --full " + run.name()).code, 65);
  std::filesystem::remove(step / "MANIFEST.json");
  EXPECT_NE(aerie("verify " + step.string()).code, 0);
}

TEST_F(Commands, verify_wrong_arguments) {
  EXPECT_EQ(aerie("verify " + path("nothing")).code, 66);
  EXPECT_EQ(aerie("verify " + path("aerie.toml")).code, 65);
  EXPECT_EQ(aerie("verify --fast --full " + run.name()).code, 2);
  EXPECT_EQ(aerie("verify --shard 4/4 " + run.name()).code, 2);
  EXPECT_EQ(aerie("verify --shard 1 " + run.name()).code, 2);
  EXPECT_EQ(aerie("verify --threads 0 " + run.name()).code, 2);
  EXPECT_EQ(aerie("verify " + (dir / "target").string()).code, 2);
}

TEST_F(Commands, inspect_by_content) {
  run.make_store({0}, {4});
  const auto step = run.make_checkpoint(3);
  const auto look = [](const std::string& what) {
    const auto e = aerie("inspect --json " + what);
    EXPECT_EQ(e.code, 0) << e.err;
    return e.json();
  };
  const auto store = look(path("store"));
  EXPECT_EQ(store.at("kind"), "store");
  EXPECT_EQ(store.at("hidden_size"), 4);
  EXPECT_EQ(store.at("failed_by_reason").at("NO_LOSS"), 1);
  EXPECT_EQ(store.at("failed_by_reason").at("NONFINITE"), 1);
  EXPECT_EQ(look(step.string()).at("step"), 3);
  const auto data = look(path("dataset/train.h5"));
  EXPECT_EQ(data.at("samples"), 6);
  EXPECT_EQ(data.at("usable"), 5);
  const auto model = look((dir / "target").string());
  EXPECT_EQ(model.at("kind"), "model");
  EXPECT_EQ(model.at("target").at("layers"), 8);
  EXPECT_EQ(look((dir / "target/model.safetensors").string()).at("tensors").at("model.embed_tokens.weight").at("shape").at(0),
            64);
  EXPECT_EQ(look(run.name()).at("store").at("samples"), 6);
  EXPECT_NE(aerie("inspect " + path("store")).out.find("hidden_size: 4\n"), std::string::npos);
  EXPECT_EQ(aerie("inspect " + path("none")).code, 66);
  EXPECT_EQ(aerie("inspect " + path("aerie.toml")).code, 65);
  test::write(dir / "lies.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{", 9));
  EXPECT_EQ(aerie("inspect " + (dir / "lies.safetensors").string()).code, 65);
}

TEST_F(Commands, accept_missing_records_a_decision) {
  const auto accept = [&](const std::string& more) { return aerie("accept-missing " + run.name() + " " + more); };
  EXPECT_EQ(accept("--all-failed --reason why").code, 66);  // no store
  run.make_store({0, 1}, {2, 4, 5});
  EXPECT_EQ(accept("--all-failed").code, 2);
  EXPECT_EQ(accept("--reason why").code, 2);
  EXPECT_EQ(accept("--ids s4 --all-failed --reason why").code, 2);
  EXPECT_EQ(accept("--ids s4 --reason ' '").code, 2);
  const auto wrong = accept("--ids s0 --reason why");
  EXPECT_EQ(wrong.code, 65);
  EXPECT_NE(wrong.err.find("'s0' is not among the failed samples"), std::string::npos) << wrong.err;
  const auto before = run.ledger().size();
  const auto some = accept("--ids s4,s2 --reason 'the node was hot'");
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_NE(some.out.find("1 still wait"), std::string::npos) << some.out;
  ASSERT_EQ(run.ledger().size(), before + 1);
  const auto line = run.ledger().back();
  EXPECT_EQ(line.at("kind"), "decision");
  EXPECT_EQ(line.at("what"), "accept-missing");
  EXPECT_EQ(line.at("details").at("ids"), (base::Json{"s2", "s4"}));
  EXPECT_EQ(line.at("details").at("count"), 2);
  EXPECT_EQ(line.at("details").at("reason"), "the node was hot");
  ASSERT_EQ(accept("--all-failed --reason why").code, 0);
  EXPECT_EQ(run.ledger().back().at("details").at("ids"), base::Json::array({"s5"}));  // neither the excluded nor the decided
  EXPECT_NE(accept("--all-failed --reason why").out.find("nothing to decide"), std::string::npos);
  EXPECT_EQ(run.ledger().size(), before + 2);
}

TEST_F(Commands, accept_missing_by_file_and_one_by_one) {
  run.make_store({0, 1}, {2, 4, 5});
  const auto accept = [&](const std::string& more) { return aerie("accept-missing " + run.name() + " --reason why " + more); };
  test::write(dir / "ids", "s2\r\n\ns0\n");
  const auto wrong = accept("--ids-file " + (dir / "ids").string());
  EXPECT_EQ(wrong.code, 65);
  EXPECT_NE(wrong.err.find("'s0' is not among the failed samples"), std::string::npos) << wrong.err;
  EXPECT_EQ(accept("--id s2,s4").code, 65) << "--id is taken as it is";
  EXPECT_EQ(accept("--ids-file " + (dir / "none").string()).code, 66);
  test::write(dir / "ids", "s2\r\n\ns5\n");
  ASSERT_EQ(accept("--id s5 --ids-file " + (dir / "ids").string()).code, 0);
  EXPECT_EQ(run.ledger().back().at("details").at("ids"), (base::Json{"s2", "s5"}));
}

TEST_F(Commands, a_failure_that_was_not_recorded_is_recorded_before_it_is_decided) {
  run.make_store({0, 1, 2}, {4, 5});
  std::string kept;  // as a job leaves it that was killed before it could write its lines
  for (const auto& line : run.ledger())
    if (line.at("kind") != "sample-failed" || line.at("id") != "s4") kept += line.dump() + "\n";
  test::write(run.path() / "ledger.jsonl", kept);
  ASSERT_EQ(aerie("accept-missing " + run.name() + " --all-failed --reason why").code, 0);
  const auto lines = run.ledger();
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines.at(lines.size() - 2).at("id"), "s4");
  EXPECT_EQ(lines.at(lines.size() - 2).at("reason"), "NONFINITE");
  const auto samples = aerie("status --json " + run.name()).json().at("samples");
  for (const auto& f : samples.at("failed_samples")) EXPECT_TRUE(f.at("decided").get<bool>()) << f;
}

TEST_F(Commands, ledger_filters_and_follows) {
  run.make_store({0}, {4});
  const auto ledger = [&](const std::string& more) { return aerie("ledger " + run.name() + " " + more); };
  run.mark_extracted();
  const auto all = ledger("");
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 3) << all.out;
  const auto phases = ledger("--kind phase,todo");
  EXPECT_EQ(std::count(phases.out.begin(), phases.out.end(), '\n'), 2) << phases.out;
  EXPECT_EQ(phases.out.find("s4"), std::string::npos);
  const auto wrong = ledger("--kind fase");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("did you mean 'phase'?"), std::string::npos) << wrong.err;
  // Following: the lines that are there, then those that come; INT ends it well, and so does a reader that has gone.
  const auto follow = test::shell(
      fmt::format("{0} ledger {1} --follow > {2}/seen & p=$!; while ! grep -q s4 {2}/seen; do sleep 0.02; done; {0} "
                  "accept-missing {1} --ids s4 "
                  "--reason why >/dev/null; while ! grep -q accept-missing {2}/seen; do sleep 0.02; done; kill -INT $p; wait $p",
                  AERIE_BIN, run.name(), dir.path().string()));
  EXPECT_EQ(follow.code, 0) << follow.err;
  const auto seen = test::read(dir / "seen");
  EXPECT_EQ(std::count(seen.begin(), seen.end(), '\n'), 4) << seen;
  const auto piped =
      test::shell(fmt::format("timeout 20 bash -c 'set -o pipefail; {} ledger {} --follow | head -1'", AERIE_BIN, run.name()));
  EXPECT_EQ(piped.code, 0) << piped.err;
}

}  // namespace
