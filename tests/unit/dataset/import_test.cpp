// SPDX-License-Identifier: Apache-2.0
// `import_jsonl`: what is kept, what is rejected and why, and the same dataset_hash as the Python tool. The golden hash was made
// by hash_of_import.py beside this file, which knows nothing of the code here.
#include <aerie/dataset/dataset.hpp>

#include <fstream>

#include <aerie/base/error.hpp>

#include <gtest/gtest.h>

#include "temp_dir.hpp"

namespace {
using namespace aerie::dataset;
using aerie::io::FailReason;
using aerie::test::TempDir;

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
std::int64_t files_in(const TempDir& dir) {
  return std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator());
}
constexpr const char* cases = "tests/unit/dataset/import_cases.jsonl";

TEST(Import, EveryCase) {
  const TempDir dir;
  const auto sum = import_jsonl(cases, dir / "d.h5", {.max_length = 6, .vocab_size = 100, .tokenizer_hash = "sha256:ab"});
  const auto d = Dataset::open(dir / "d.h5");
  ASSERT_EQ(d.size(), 20);
  EXPECT_EQ(d.id(0), "plain");
  EXPECT_EQ(d.id(1), "7");
  EXPECT_EQ(d.id(2), "import_cases.jsonl:3");
  EXPECT_EQ(d.source_line(3), 5);  // a blank line before it
  const std::vector<FailReason> expected{
      FailReason::none,      FailReason::none,      FailReason::none,      FailReason::none,      FailReason::no_loss,
      FailReason::no_loss,   FailReason::empty,     FailReason::bad_token, FailReason::bad_token, FailReason::bad_token,
      FailReason::bad_input, FailReason::bad_input, FailReason::bad_input, FailReason::bad_input, FailReason::bad_input,
      FailReason::bad_input, FailReason::bad_input, FailReason::bad_input, FailReason::bad_input, FailReason::none};
  for (std::int64_t s = 0; s < d.size(); ++s) {
    EXPECT_EQ(d.reject(s), expected[static_cast<std::size_t>(s)]) << s << ": " << d.note(s);
    if (d.reject(s) != FailReason::none) {
      EXPECT_EQ(d.length(s), 0);
      EXPECT_NE(d.note(s).find("import_cases.jsonl:" + std::to_string(d.source_line(s))), std::string::npos) << d.note(s);
    }
  }
  Tokens t;
  d.read(0, t);
  EXPECT_EQ(t.ids, (std::vector<std::int32_t>{1, 2, 3, 99}));
  EXPECT_EQ(t.mask, (std::vector<std::uint8_t>{0, 0, 1, 1}));
  d.read(3, t);
  EXPECT_EQ(t.ids, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(d.note(3), "truncated from 8 to 6 tokens");
  EXPECT_EQ(sum.samples, 20);
  EXPECT_EQ(sum.truncated, 1);
  EXPECT_EQ(sum.tokens, d.n_tokens());
  EXPECT_EQ(sum.rejected[static_cast<std::size_t>(FailReason::bad_input)], 9);
  EXPECT_EQ(sum.rejected[0], 0);
  EXPECT_EQ(d.n_truncated(), 1);
  EXPECT_EQ(d.max_length(), 6);
  EXPECT_EQ(d.vocab_size(), 100);
  EXPECT_EQ(d.tokenizer_hash(), "sha256:ab");
  EXPECT_NO_THROW(d.verify());
}

TEST(Import, HashIsTheOneThatPythonComputes) {
  const TempDir dir;
  import_jsonl(cases, dir / "d.h5", {.max_length = 6, .vocab_size = 100});
  std::ifstream golden("tests/unit/dataset/import_cases.hash");
  std::string hash;
  golden >> hash;
  ASSERT_EQ(hash.size(), std::string("xxh3-128:").size() + 32);
  EXPECT_EQ(Dataset::open(dir / "d.h5").hash(), hash);
}

TEST(Import, OverlengthSkipRejects) {
  const TempDir dir;
  for (const auto o : {Overlength::skip, Overlength::fail}) {
    const auto sum = import_jsonl(cases, dir / "d.h5", {.max_length = 6, .overlength = o, .vocab_size = 100});
    EXPECT_EQ(sum.rejected[static_cast<std::size_t>(FailReason::too_long)], 2);
    EXPECT_EQ(sum.truncated, 0);
    EXPECT_EQ(Dataset::open(dir / "d.h5").reject(3), FailReason::too_long);
  }
}

TEST(Import, Limit) {
  const TempDir dir;
  EXPECT_EQ(import_jsonl(cases, dir / "d.h5", {.limit = 2}).samples, 2);
  EXPECT_EQ(Dataset::open(dir / "d.h5").size(), 2);
}

TEST(Import, LongLinesAndNoNewlineAtTheEnd) {
  // Lines longer than the reader's buffer of 1 MiB, the last one without an end.
  const TempDir dir;
  std::string ids, mask;
  constexpr int n = 400000;
  for (int i = 0; i < n; ++i) {
    ids += std::to_string(i) + ",";
    mask += "1,";
  }
  const auto line = "{\"id\":\"long\",\"input_ids\":[" + ids + "0],\"loss_mask\":[" + mask + "0]}";
  write(dir / "in.jsonl", line + "\n" + line);
  import_jsonl(dir / "in.jsonl", dir / "d.h5", {});
  const auto d = Dataset::open(dir / "d.h5");
  ASSERT_EQ(d.size(), 2);
  Tokens t;
  for (const std::int64_t s : {0, 1}) {
    d.read(s, t);
    ASSERT_EQ(t.ids.size(), std::size_t{n + 1});
    for (int i = 0; i < n; ++i) ASSERT_EQ(t.ids[static_cast<std::size_t>(i)], i);
  }
  EXPECT_NO_THROW(d.verify());
}

TEST(Import, NothingUsableThrowsAndLeavesNothing) {
  const TempDir dir;
  write(dir / "in.jsonl", "nonsense\n{\"input_ids\":[],\"loss_mask\":[]}\n");
  EXPECT_THROW(import_jsonl(dir / "in.jsonl", dir / "d.h5", {}), aerie::base::DataError);
  write(dir / "in.jsonl", "\n");
  EXPECT_THROW(import_jsonl(dir / "in.jsonl", dir / "d.h5", {}), aerie::base::DataError);
  EXPECT_EQ(files_in(dir), 1);
}

TEST(Import, FailuresAreTypedAndKeepTheOldFile) {
  const TempDir dir;
  EXPECT_THROW(import_jsonl(dir / "gone.jsonl", dir / "d.h5", {}), aerie::base::MissingInputError);
  EXPECT_THROW(import_jsonl(cases, dir / "no/such/d.h5", {}), aerie::base::IoError);
  import_jsonl(cases, dir / "d.h5", {.vocab_size = 100});
  const auto before = Dataset::open(dir / "d.h5").hash();
  write(dir / "bad.jsonl", "{}\n");
  EXPECT_THROW(import_jsonl(dir / "bad.jsonl", dir / "d.h5", {}), aerie::base::DataError);
  EXPECT_EQ(Dataset::open(dir / "d.h5").hash(), before);
  EXPECT_EQ(files_in(dir), 2);
}

TEST(Import, OverlengthNames) {
  EXPECT_EQ(overlength_from_name("fail"), Overlength::fail);
  EXPECT_THROW(overlength_from_name("cut"), aerie::base::ConfigError);
}
}  // namespace
