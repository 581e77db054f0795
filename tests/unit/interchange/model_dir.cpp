// SPDX-License-Identifier: Apache-2.0
// Model directories: single file and shards, what is missing, and the hashes.
#include <aerie/interchange/model_dir.hpp>

#include <cstdlib>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {
using base::Json;
using test::TempDir;
using test::TensorSet;
using test::write_file;

const std::string one = "model-00001-of-00002.safetensors", two = "model-00002-of-00002.safetensors";

void write_sharded(const std::filesystem::path& dir, const Json& weight_map) {
  write_file(dir / "config.json", R"({"b": 1, "a": [2.5, null]})");
  write_file(dir / "model.safetensors.index.json", Json{{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}}.dump());
}
void write_shards(const std::filesystem::path& dir) {
  TensorSet a, b;
  a.add("w1", Dtype::u8, {3}, "abc");
  a.add("w3", Dtype::bf16, {2}, "1234");
  b.add("w2", Dtype::f32, {1, 1}, "wxyz");
  write_safetensors(dir / one, a.list());
  write_safetensors(dir / two, b.list());
}
const Json good_map = {{"w1", one}, {"w2", two}, {"w3", one}};

template <class E>
std::string refusal(const std::filesystem::path& dir) {
  try {
    ModelDirectory::open(dir);
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

TEST(ModelDirectory, ReadsShards) {
  const TempDir tmp;
  write_sharded(tmp.path(), good_map);
  write_shards(tmp.path());
  const auto dir = ModelDirectory::open(tmp.path());
  EXPECT_EQ(dir.tensor_names(), (std::vector<std::string>{"w1", "w2", "w3"}));
  EXPECT_EQ(dir.config().at("b"), 1);
  EXPECT_TRUE(dir.contains("w2"));
  EXPECT_FALSE(dir.contains("w4"));
  EXPECT_EQ(dir.info("w3").dtype, Dtype::bf16);
  const auto w2 = dir.read("w2");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(w2.data()), w2.size()), "wxyz");
  try {
    dir.read("w4");
    ADD_FAILURE();
  } catch (const base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find("'w4'"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find(tmp.path().string()), std::string::npos);
  }
}

TEST(ModelDirectory, NamesWhatIsMissing) {
  const TempDir tmp;
  EXPECT_NE(refusal<base::MissingInputError>(tmp / "nowhere").find("nowhere"), std::string::npos);
  EXPECT_NE(refusal<base::MissingInputError>(tmp.path()).find("config.json"), std::string::npos);
  write_file(tmp / "config.json", "{}");
  EXPECT_NE(refusal<base::MissingInputError>(tmp.path()).find("model.safetensors.index.json"), std::string::npos);
  write_sharded(tmp.path(), good_map);
  write_shards(tmp.path());
  std::filesystem::remove(tmp / one);
  auto message = refusal<base::MissingInputError>(tmp.path());
  EXPECT_NE(message.find((tmp / one).string()), std::string::npos) << message;
  EXPECT_NE(message.find("2 tensors"), std::string::npos) << message;
  std::filesystem::remove(tmp / two);
  EXPECT_NE(refusal<base::MissingInputError>(tmp.path()).find("2 of 2 shards"), std::string::npos);
}

TEST(ModelDirectory, RefusesAWrongIndex) {
  const TempDir tmp;
  write_shards(tmp.path());
  write_sharded(tmp.path(), {{"w1", two}});
  EXPECT_NE(refusal<base::DataError>(tmp.path()).find("'w1'"), std::string::npos);
  for (const Json& map : {Json::object(), Json::array(), Json{{"w1", 1}}, Json{{"w1", "../" + one}}, Json{{"w1", ""}},
                          Json{{"w1", "/etc/passwd"}}}) {
    write_sharded(tmp.path(), map);
    EXPECT_NE(refusal<base::DataError>(tmp.path()).find("weight_map"), std::string::npos) << map;
  }
  write_sharded(tmp.path(), good_map);
  write_file(tmp / "config.json", "[]");
  refusal<base::DataError>(tmp.path());
}

TEST(ModelDirectory, TensorsThatTheIndexForgotAreThere) {
  const TempDir tmp;
  write_shards(tmp.path());
  write_sharded(tmp.path(), {{"w1", one}, {"w2", two}});
  EXPECT_TRUE(ModelDirectory::open(tmp.path()).contains("w3"));
}

TEST(ModelDirectory, HashesFollowTheirDefinitions) {
  const TempDir tmp;
  write_sharded(tmp.path(), good_map);
  write_shards(tmp.path());
  const auto dir = ModelDirectory::open(tmp.path());
  EXPECT_EQ(dir.config_hash(), base::xxh3_128_tagged(R"({"a":[2.5,null],"b":1})"));
  EXPECT_EQ(dir.tensor_hash("w2"), base::xxh3_128_tagged("[\"F32\",[1,1]]\nwxyz"));
  const auto line = [](const std::string& head, const std::string& bytes) {
    return head + ",\"" + base::xxh3_128_tagged(bytes) + "\"]\n";
  };
  const auto expected = base::xxh3_128_tagged(line(R"(["w1","U8",[3])", "abc") + line(R"(["w2","F32",[1,1])", "wxyz") +
                                              line(R"(["w3","BF16",[2])", "1234"));
  EXPECT_EQ(dir.weights_hash(), expected);
  std::map<std::string, std::string> shares;  // as ranks gather them
  for (const auto& name : dir.tensor_names()) shares[name] = dir.bytes_hash(name);
  EXPECT_EQ(dir.weights_hash(shares), expected);

  // The same tensors in one file, in another order, are the same weights; one bit, a shape or a dtype is another model.
  const auto single = [](const char* w1, Dtype dtype, std::vector<std::int64_t> shape) {
    const TempDir other;
    write_file(other / "config.json", "{}");
    TensorSet set;
    set.add("w2", dtype, std::move(shape), "wxyz");
    set.add("w3", Dtype::bf16, {2}, "1234");
    set.add("w1", Dtype::u8, {3}, w1);
    write_safetensors(other / "model.safetensors", set.list());
    return ModelDirectory::open(other.path()).weights_hash();
  };
  EXPECT_EQ(single("abc", Dtype::f32, {1, 1}), expected);
  EXPECT_NE(single("abb", Dtype::f32, {1, 1}), expected);
  EXPECT_NE(single("abc", Dtype::f32, {1}), expected);
  EXPECT_NE(single("abc", Dtype::i32, {1, 1}), expected);
}

TEST(ModelDirectory, HashesOfATensorLargerThanOnePiece) {
  const TempDir tmp;
  write_file(tmp / "config.json", "{}");
  std::string bytes((std::size_t{9} << 20) + 3, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  TensorSet set;
  set.add("w", Dtype::u8, {static_cast<std::int64_t>(bytes.size())}, bytes);
  write_safetensors(tmp / "model.safetensors", set.list());
  const auto dir = ModelDirectory::open(tmp.path());
  const auto shape = std::to_string(bytes.size());
  EXPECT_EQ(dir.tensor_hash("w"), base::xxh3_128_tagged("[\"U8\",[" + shape + "]]\n" + bytes));
  EXPECT_EQ(dir.weights_hash(),
            base::xxh3_128_tagged("[\"w\",\"U8\",[" + shape + "],\"" + base::xxh3_128_tagged(bytes) + "\"]\n"));
}

TEST(ModelDirectory, TokenizerHash) {
  const TempDir tmp;
  test::write_model(tmp.path(), test::llama_config());
  const auto dir = ModelDirectory::open(tmp.path());
  EXPECT_THROW(dir.tokenizer_hash(), base::MissingInputError);
  write_file(tmp / "tokenizer.json", "{\"t\": 1}\n");
  const auto expected = [](const std::string& text) { return base::sha256_tagged(std::string("{\"t\": 1}\n") + '\0' + text); };
  EXPECT_EQ(dir.tokenizer_hash(), expected(""));
  write_file(tmp / "tokenizer_config.json", R"({"chat_template": "{{ \u00e9 }}"})");
  EXPECT_EQ(dir.tokenizer_hash(), expected("{{ \xc3\xa9 }}"));
  write_file(tmp / "tokenizer_config.json",
             R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(dir.tokenizer_hash(), expected("D"));
  write_file(tmp / "tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(dir.tokenizer_hash(), expected(""));
  write_file(tmp / "tokenizer_config.json", R"({"chat_template": 1})");
  EXPECT_THROW(dir.tokenizer_hash(), base::DataError);
  write_file(tmp / "chat_template.jinja", "J");  // wins, as in transformers
  EXPECT_EQ(dir.tokenizer_hash(), expected("J"));
}

}  // namespace
}  // namespace aerie::interchange
