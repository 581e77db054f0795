// SPDX-License-Identifier: Apache-2.0
// Configuration: the file, the flags, what is refused and how the message helps.
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <aerie/base/error.hpp>
#include <aerie/config/config.hpp>

#include "temp_dir.hpp"

namespace {
using namespace aerie;
using config::Config;

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

/// What a program sees for these arguments.
Config parse(std::vector<std::string> args) {
  Config c;
  CLI::App app;
  config::add_options(app, c);
  args.insert(args.begin(), "program");
  std::vector<const char*> argv;
  for (const auto& a : args) argv.push_back(a.c_str());
  config::parse(app, static_cast<int>(argv.size()), argv.data());
  return c;
}
struct Failure {
  std::string what, hint;
  int code = 0;
};
template <class F>
Failure failure(F&& f) {
  try {
    f();
  } catch (const base::Error& e) {
    return {e.what(), e.hint(), static_cast<int>(e.code())};
  }
  return {};
}

class File : public testing::Test {
 protected:
  Config load(const std::string& text) {
    write(dir / "aerie.toml", text);
    return config::load(dir.path());
  }
  Failure fails(const std::string& text) {
    return failure([&] { load(text); });
  }
  std::string at(int line) const { return (dir / "aerie.toml").string() + ":" + std::to_string(line) + ": "; }
  test::TempDir dir;
};

TEST_F(File, values_of_every_type) {
  const auto c = load(R"(# a comment
[target]
path = "/models/a b # c"
[extract]
layers = [
  2,
  12,   # over several lines
  21,
]
commit_seconds = 3
[draft]
rope_theta = 1e6
[train]
steps = 1_000
betas = [0.8, 0.99]
step_weights = [1, 0.5]
ttt_steps = 2
seed = 7
[export]
formats = ["vllm"]
with_embedding = true
)");
  EXPECT_EQ(c.target.path, "/models/a b # c");
  EXPECT_EQ(c.extract.layers, (std::vector<std::int32_t>{2, 12, 21}));
  EXPECT_EQ(c.extract.commit_seconds, 3.0);
  EXPECT_EQ(c.draft.rope_theta, 1e6);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(c.train.step_weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(c.train.seed, 7U);
  EXPECT_EQ(c.export_.formats, std::vector<std::string>{"vllm"});
  EXPECT_TRUE(c.export_.with_embedding);
  EXPECT_EQ(c.train.pack_tokens, 4096);  // untouched
  EXPECT_EQ(c.run_dir, dir.path());
  EXPECT_EQ(c.dataset_file(), dir / "dataset/train.h5");
}

TEST_F(File, flags_beat_the_file) {
  write(dir / "aerie.toml", "[train]\nsteps = 5\nlr = 0.5\n[extract]\nlayers = [1, 2, 3]\n[export]\nwith_embedding = true\n");
  const auto run = dir.path().string();
  const auto c = parse({"--run", run, "--train.steps", "100", "--extract.layers", "4,5,6", "--export.with_embedding=false"});
  EXPECT_EQ(c.train.steps, 100);
  EXPECT_EQ(c.train.lr, 0.5);
  EXPECT_EQ(c.extract.layers, (std::vector<std::int32_t>{4, 5, 6}));
  EXPECT_FALSE(c.export_.with_embedding);
}

TEST_F(File, a_list_flag_takes_one_argument) {
  write(dir / "aerie.toml", "");
  const auto c = parse({"--train.step_weights", "1,0.5", dir.path().string()});
  EXPECT_EQ(c.train.step_weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(c.run_dir, dir.path());
}

TEST_F(File, config_names_another_file) {
  write(dir / "aerie.toml", "[train]\nsteps = 5\n");
  write(dir / "other.toml", "[train]\nsteps = 6\n");
  EXPECT_EQ(parse({"--run", dir.path().string(), "--config", (dir / "other.toml").string()}).train.steps, 6);
  EXPECT_EQ(parse({"--config", (dir / "other.toml").string()}).train.steps, 6);
  EXPECT_EQ(parse({}).train.steps, 0);
}

TEST_F(File, empty_lists) {
  EXPECT_TRUE(load("[extract]\nlayers = []\n").extract.layers.empty());
  EXPECT_EQ(fails("[eval]\nchain = []\n").what, "eval.chain is empty");  // not silently the default
  EXPECT_EQ(fails("[train]\nbetas = []\n").what, at(2) + "train.betas must not be empty");
}

TEST_F(File, unknown_key_names_line_and_nearest) {
  const auto f = fails("[train]\nsteps = 5\n\nwarmupp = 0.1\n");
  EXPECT_EQ(f.code, 2);
  EXPECT_EQ(f.what, at(4) + "unknown key 'train.warmupp'");
  EXPECT_EQ(f.hint, "did you mean 'train.warmup'?");
}

TEST_F(File, unknown_section_and_key_outside_sections) {
  EXPECT_EQ(fails("[trian]\nsteps = 5\n").hint, "did you mean 'train.steps'?");
  EXPECT_EQ(fails("[tarject]\n").what, at(1) + "unknown section [tarject]");
  EXPECT_EQ(fails("[tarject]\n").hint, "did you mean [target]?");
  EXPECT_EQ(fails("pack_token = 5\n").hint, "did you mean 'train.pack_tokens'?");
  EXPECT_EQ(fails("[train.steps]\nx = 1\n").code, 2);
  EXPECT_EQ(fails("[[train]]\nsteps = 1\n").code, 2);
}

TEST_F(File, repeated_key_is_refused) {
  const auto f = fails("[train]\nsteps = 5\nlr = 0.1\nsteps = 6\n");
  EXPECT_EQ(f.code, 2);
  EXPECT_EQ(f.what.find(at(4)), 0U) << f.what;
  EXPECT_EQ(fails("[train]\nsteps = 5\n[train]\nlr = 1.0\n").code, 2);
}

TEST_F(File, bad_syntax_names_the_line) {
  const auto f = fails("[train]\nsteps = 5\nlr 0.1\n");
  EXPECT_EQ(f.code, 2);
  EXPECT_EQ(f.what.find(at(3)), 0U) << f.what;
}

TEST_F(File, wrong_types_name_line_and_type) {
  EXPECT_EQ(fails("[train]\nsteps = \"5\"\n").what, at(2) + "train.steps must be an integer");
  EXPECT_EQ(fails("[train]\nsteps = 5.0\n").what, at(2) + "train.steps must be an integer");
  EXPECT_EQ(fails("[train]\nlr = true\n").what, at(2) + "train.lr must be a number");
  EXPECT_EQ(fails("\n[target]\npath = 3\n").what, at(3) + "target.path must be a text in quotes");
  EXPECT_EQ(fails("[export]\nwith_embedding = 1\n").what, at(2) + "export.with_embedding must be true or false");
  EXPECT_EQ(fails("[extract]\nlayers = 3\n").what, at(2) + "extract.layers must be a list of integers");
  EXPECT_EQ(fails("[extract]\nlayers = [1, 2, \"x\"]\n").what, at(2) + "extract.layers must be a list of integers");
  EXPECT_EQ(fails("[train]\nsteps = [5]\n").what, at(2) + "train.steps must be an integer");
  EXPECT_EQ(fails("[train]\nbetas = [0.9]\n").what, "train.betas must be a list of 2 numbers");
}

TEST_F(File, missing_file_is_66) {
  const auto f = failure([&] { config::load(dir / "nothing"); });
  EXPECT_EQ(f.code, 66);
  EXPECT_EQ(f.what, (dir / "nothing/aerie.toml").string() + ": no such file");
  EXPECT_NE(f.hint.find("aerie init"), std::string::npos);
}

TEST(Flags, unknown_bad_and_repeated) {
  const auto unknown = failure([] { parse({"--train.stepz", "5"}); });
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.what, "unknown flag '--train.stepz'");
  EXPECT_EQ(unknown.hint, "did you mean '--train.steps'?");
  EXPECT_EQ(failure([] { parse({"--seed=5"}); }).hint, "did you mean '--train.seed'?");
  EXPECT_EQ(failure([] { parse({"--train.steps", "many"}); }).code, 2);
  EXPECT_NE(failure([] { parse({"--train.steps", "many"}); }).what.find("train.steps"), std::string::npos);
  EXPECT_EQ(failure([] { parse({"--train.steps"}); }).code, 2);
  EXPECT_EQ(failure([] { parse({"--train.steps", "1", "--train.steps", "2"}); }).code, 2);
  EXPECT_EQ(failure([] { parse({"--train.betas", "0.9"}); }).code, 2);
  EXPECT_EQ(failure([] { parse({"run", "surplus"}); }).code, 2);
}

TEST(NearestKey, by_edit_distance) {
  EXPECT_EQ(config::nearest_key("train.step"), "train.steps");
  EXPECT_EQ(config::nearest_key("evall.holdot"), "eval.holdout");
  EXPECT_EQ(config::nearest_key("holdot"), "eval.holdout");
}

std::string refusal(const std::function<void(Config&)>& change) {
  Config c;
  change(c);
  const auto f = failure([&] { config::validate(c); });
  EXPECT_TRUE(f.what.empty() || f.code == 2);
  return f.what;
}

TEST(Validate, ranges_and_choices_name_the_key) {
  EXPECT_EQ(refusal([](Config&) {}), "");
  EXPECT_EQ(refusal([](Config& c) { c.train.lr = 0; }), "train.lr is 0, but must be above 0");
  EXPECT_EQ(refusal([](Config& c) { c.train.lr = std::numeric_limits<double>::quiet_NaN(); }),
            "train.lr must be a finite number");
  EXPECT_EQ(refusal([](Config& c) { c.train.keep = 1; }), "train.keep is 1, but must be at least 2");
  EXPECT_EQ(refusal([](Config& c) { c.eval.holdout = 0.9; }), "eval.holdout is 0.9, but must be at least 0 and at most 0.5");
  EXPECT_EQ(refusal([](Config& c) { c.target.dtype = "bf32"; }), "target.dtype is \"bf32\", but must be one of auto, fp32, bf16");
  EXPECT_EQ(refusal([](Config& c) {
              c.export_.formats = {"sglang", "vlm"};
            }),
            "export.formats is \"vlm\", but must be one of sglang, vllm, speculators");
  Config c;
  c.train.reduce = "exakt";
  EXPECT_EQ(failure([&] { config::validate(c); }).hint, "did you mean \"exact\"?");
}

TEST(Validate, between_keys) {
  EXPECT_NE(refusal([](Config& c) { c.extract.layers = {1, 2}; }).find("extract.layers"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.extract.layers = {3, 2, 1}; }).find("extract.layers"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.draft.heads = 6, c.draft.kv_heads = 4; }).find("draft.kv_heads"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.train.step_weights = {1, 1}; }).find("train.step_weights"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.train.betas = {0.9, 1.0}; }).find("train.betas"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.train.min_lr = 1; }).find("train.min_lr"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.train.save_every_steps = 0, c.train.save_every_seconds = 0; }).find("save_every"),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.train.bad_step = "ignore"; }).find("train.bad_step"), std::string::npos);
  EXPECT_EQ(refusal([](Config& c) { c.eval.every_steps = 5; }), "");
  EXPECT_NE(refusal([](Config& c) { c.eval.every_steps = 5, c.eval.holdout = 0; }).find("eval.every_steps"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.export_.formats.clear(); }).find("export.formats"), std::string::npos);
}

TEST(CommentedFile, reads_back_as_the_same_config) {
  Config c;
  c.target.path = "/models/\"quoted\" \\ back\tslash\x01 and \xc3\xa4";
  c.train.lr = 0.1 + 0.2;
  c.train.eps = 1e-8;
  c.train.weight_decay = 3;
  c.train.seed = 1234567890123;
  c.train.step_weights = {1, 0.25, 1e-300};
  c.train.ttt_steps = 3;
  c.extract.layers = {2, 12, 21};
  c.eval.chain = {1};
  c.export_.formats = {"speculators"};
  c.export_.with_embedding = true;
  c.slurm.site = "/etc/site.env";
  test::TempDir dir;
  const auto text = config::commented_toml(c);
  write(dir / "aerie.toml", text);
  const auto back = config::load(dir.path());
  EXPECT_EQ(config::to_json(back), config::to_json(c)) << text;
  EXPECT_EQ(config::commented_toml(back), text);
  // Every key is there, with a comment behind it.
  const auto json = config::to_json(c);
  std::size_t keys = 0;
  for (const auto& [section, values] : json.items()) {
    EXPECT_NE(text.find("\n[" + section + "]\n"), std::string::npos);
    for (const auto& item : values.items()) {
      const auto at = text.find("\n" + item.key() + " = ");
      ASSERT_NE(at, std::string::npos) << item.key();
      EXPECT_NE(text.substr(at + 1, text.find('\n', at + 1) - at - 1).find(" # "), std::string::npos) << item.key();
      ++keys;
    }
  }
  EXPECT_EQ(keys, 66U);
}

TEST(Documentation, holds_the_defaults_as_written) {
  std::ifstream in("docs/reference/configuration.md");  // tests run in the source tree
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find("```toml\n" + config::commented_toml(Config{}) + "```"), std::string::npos)
      << "put `--print-config` into the document";
}

TEST(Identity, hash_and_result_keys) {
  Config a, b;
  a.run_dir = "/one";
  b.run_dir = "/two";
  EXPECT_EQ(config::config_hash(a), config::config_hash(b));
  EXPECT_EQ(config::config_hash(a).rfind("xxh3-128:", 0), 0U);
  EXPECT_FALSE(config::to_json(a).contains("run_dir"));
  b.train.keep = 5;
  EXPECT_NE(config::config_hash(a), config::config_hash(b));
  EXPECT_EQ(config::result_keys(a), config::result_keys(b));
  b.train.steps = 100;
  EXPECT_NE(config::result_keys(a), config::result_keys(b));
  EXPECT_EQ(config::result_keys(b).at("train.steps"), 100);
  const auto keys = config::result_keys(a);
  for (const auto* k :
       {"target.dtype", "target.device", "dataset.max_length", "extract.layers", "extract.dtype", "draft.vocab_size", "train.lr",
        "train.bad_step", "train.spike_factor", "train.epochs", "train.seed", "run.threads", "eval.holdout"})
    EXPECT_TRUE(keys.contains(k)) << k;
  for (const auto* k :
       {"target.path", "train.transport", "train.save_every_steps", "train.save_every_seconds", "train.keep", "train.keep_every",
        "slurm.lead_seconds", "eval.every_steps", "extract.part_bytes", "run.locks", "export.formats"})
    EXPECT_FALSE(keys.contains(k)) << k;
  Config c;
  c.eval.conversations = "eval.jsonl";
  EXPECT_EQ(c.holdout(), 0.0);
  EXPECT_EQ(config::result_keys(c).at("eval.holdout"), 0.0);
}

TEST(Identity, sections_hash_sees_its_sections_only) {
  Config a, b;
  b.eval.every_steps = 10;
  EXPECT_EQ(config::sections_hash(a, {"train", "draft"}), config::sections_hash(b, {"train", "draft"}));
  EXPECT_NE(config::sections_hash(a, {"eval"}), config::sections_hash(b, {"eval"}));
}

TEST(DifferingFlags, make_the_other_configuration) {
  Config a, b;
  b.train.steps = 7;
  b.train.lr = 0.25;
  b.extract.layers = {1, 2, 3};
  b.export_.with_embedding = true;
  b.target.path = "/a b";
  const auto flags = config::differing_flags(a, b);
  EXPECT_EQ(flags.size(), 5U);
  EXPECT_EQ(config::to_json(parse(flags)), config::to_json(b));
  EXPECT_TRUE(config::differing_flags(a, a).empty());
}

}  // namespace
