// SPDX-License-Identifier: Apache-2.0
// `aerie init` and `aerie import`: what they write, and what bad input gets.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <aerie/config/config.hpp>

#include "fixture.hpp"

namespace {
using namespace aerie;
using test::aerie;
using test::write;

class Init : public testing::Test {
 protected:
  void SetUp() override {
    test::make_target(dir / "target");
    write(dir / "talk.jsonl", "{\"messages\": []}\n");
  }
  test::Ended init(const std::string& more = {}) {
    return aerie(fmt::format("init {0}/run --target {0}/target --conversations {0}/talk.jsonl {1}", dir.path().string(), more));
  }
  std::string at(const std::string& name) const { return (dir / name).string(); }
  test::TempDir dir;
};

TEST_F(Init, writes_what_the_target_implies) {
  const auto done = init();
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("next: aerie run " + at("run")), std::string::npos) << done.out;
  const auto c = config::load(dir / "run");
  EXPECT_EQ(c.target.path, std::filesystem::canonical(dir / "target"));
  EXPECT_EQ(c.extract.layers, (std::vector<std::int32_t>{2, 4, 5}));
  EXPECT_EQ(c.draft.hidden_size, 16);
  EXPECT_EQ(c.draft.intermediate_size, 32);
  EXPECT_EQ(c.draft.heads, 4);
  EXPECT_EQ(c.draft.kv_heads, 2);
  EXPECT_EQ(c.draft.head_dim, 4);
  EXPECT_EQ(c.draft.vocab_size, 64);     // clipped to the target's
  EXPECT_EQ(c.dataset.max_length, 128);  // clipped to the target's positions
  EXPECT_EQ(c.extract.part_bytes, 8 << 20);
  EXPECT_EQ(c.holdout(), 0.01);
  EXPECT_EQ(test::read(dir / "run/aerie.toml"), config::commented_toml(c));
}

TEST_F(Init, evaluation_file_settings_and_large_data) {
  write(dir / "eval.jsonl", "{}\n");
  write(dir / "talk.jsonl", "{" + std::string(16 << 20, ' ') + "}\n");
  const auto done =
      init("--eval-conversations " + at("eval.jsonl") +
           " --set train.steps=7 --set 'extract.layers = [1, 2, 3]' --set target.dtype=fp32 --set 'run.locks=\"none\"'");
  ASSERT_EQ(done.code, 0) << done.err;
  const auto c = config::load(dir / "run");
  EXPECT_EQ(c.eval.conversations, std::filesystem::canonical(dir / "eval.jsonl"));
  EXPECT_EQ(c.holdout(), 0.0);
  EXPECT_EQ(c.train.steps, 7);
  EXPECT_EQ(c.extract.layers, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(c.target.dtype, "fp32");
  EXPECT_EQ(c.run.locks, "none");
  // 4 Mi tokens of 4 * 16 * 2 + 5 bytes, in 32 parts of whole MiB.
  EXPECT_EQ(c.extract.part_bytes, 16 << 20);
}

TEST_F(Init, refuses_an_existing_run) {
  ASSERT_EQ(init().code, 0);
  const auto before = test::read(dir / "run/aerie.toml");
  const auto again = init("--set train.steps=7");
  EXPECT_EQ(again.code, 78);
  EXPECT_NE(again.err.find(at("run") + " is a run already"), std::string::npos) << again.err;
  EXPECT_EQ(test::read(dir / "run/aerie.toml"), before);
}

TEST_F(Init, bad_inputs_are_named_and_nothing_is_written) {
  const auto expect = [&](int code, const std::string& text, const test::Ended& ended) {
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_NE(ended.err.find(text), std::string::npos) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "run"));
  };
  expect(2, "unknown key 'train.stepz' (did you mean 'train.steps'?)", init("--set train.stepz=1"));
  expect(2, "'train.steps' is not section.key=value", init("--set train.steps"));
  expect(2, "train.steps", init("--set train.steps=many"));
  expect(2, "train.keep is 1", init("--set train.keep=1"));
  expect(2, "draft.vocab_size is 65, but the target has 64 tokens", init("--set draft.vocab_size=65"));
  expect(2, "extract.layers holds 9", init("--set extract.layers=1,2,9"));
  expect(66, at("none.jsonl") + ": no such file", init("--eval-conversations " + at("none.jsonl")));
  expect(66, "slurm.site = /nothing/there", init("--set slurm.site=/nothing/there"));
  expect(2, "target", aerie("init " + at("run") + " --conversations " + at("talk.jsonl")));
  write(dir / "talk.jsonl", "\n\nhello\n");
  expect(65, at("talk.jsonl") + ":3: is not JSON", init());
  write(dir / "talk.jsonl", "\n");
  expect(65, at("talk.jsonl") + ": is empty", init());
  write(dir / "talk.jsonl", "{}\n");
  std::filesystem::remove(dir / "target/tokenizer.json");
  expect(66, at("target/tokenizer.json"), init());
  write(dir / "target/tokenizer.json", "{}");
  write(dir / "target/config.json", "{");
  expect(65, "config.json", init());
  std::filesystem::remove(dir / "target/config.json");
  expect(66, "config.json", init());
  std::filesystem::remove_all(dir / "target");
  expect(66, at("target"), init());
}

TEST_F(Init, import_and_its_refusals) {
  const auto import = [&](const std::string& more) {
    return aerie(fmt::format("import {0}/t.jsonl --out {0}/t.h5 {1}", dir.path().string(), more));
  };
  write(dir / "t.jsonl",
        "{\"id\": \"a\", \"input_ids\": [1, 2, 3, 63], \"loss_mask\": [0, 1, 1, 1]}\n"
        "{\"id\": \"b\", \"input_ids\": [1, 64], \"loss_mask\": [1, 1]}\n");
  const auto done = import("--json --target " + at("target"));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.json().at("samples"), 2);
  EXPECT_EQ(done.json().at("tokens"), 4);
  EXPECT_EQ(done.json().at("loss_tokens"), 3);
  EXPECT_EQ(done.json().at("rejected").at("BAD_TOKEN"), 1);
  EXPECT_EQ(import("--overlength cut").code, 2);
  EXPECT_EQ(import("--max-length=-1").code, 2);
  EXPECT_EQ(import("--vocab-size 1").code, 65);  // every sample is rejected
  EXPECT_EQ(aerie("import " + at("none.jsonl") + " --out " + at("x.h5")).code, 66);
}

}  // namespace
