// SPDX-License-Identifier: Apache-2.0
// Writing and reading safetensors files: bytes, alignment, what is refused.
#include <aerie/interchange/safetensors.hpp>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {
using test::TempDir;
using test::TensorSet;

TEST(Safetensors, WritesTheFormatByteByByte) {
  const TempDir tmp;
  TensorSet set;
  set.add("b", Dtype::u8, {3}, "xyz");
  set.add("a", Dtype::bf16, {1, 2}, "1234");
  write_safetensors(tmp / "f", set.list(), {{"k", "v"}});
  // Given order, one space-padded header, data from a multiple of 64 on, no gap between tensors.
  std::string header = R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                       R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[3,7]}})";
  header.resize(184, ' ');
  EXPECT_EQ(base::read_text(tmp / "f"), std::string("\xb8\0\0\0\0\0\0\0", 8) + header + "xyz1234");
}

TEST(Safetensors, DataStartAt64ForEveryHeaderLength) {
  const TempDir tmp;
  for (const std::size_t n : {1, 2, 7, 8, 31, 63, 64, 65}) {
    TensorSet set;
    set.add(std::string(n, 'n'), Dtype::u8, {1}, "x");
    write_safetensors(tmp / "f", set.list());
    const auto file = SafetensorsFile::open(tmp / "f");
    EXPECT_EQ(file.tensors().begin()->second.begin % 64, 0) << n;
  }
}

TEST(Safetensors, RoundTripsEveryDtype) {
  const TempDir tmp;
  TensorSet set;
  std::map<std::string, std::string> content;
  for (const char* name :
       {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "I64", "U64", "F64"}) {
    std::string bytes;
    for (std::size_t i = 0; i < 6 * dtype_size(dtype_from_name(name)); ++i) bytes += static_cast<char>(content.size() * 31 + i);
    content[name] = bytes;
    set.add(name, dtype_from_name(name), {2, 3}, bytes);
  }
  set.add("scalar", Dtype::f32, {}, "abcd");
  set.add("empty", Dtype::f32, {4, 0, 2});
  write_safetensors(tmp / "f", set.list(), {{"one", "1"}, {"two", "\"\n"}});
  const auto file = SafetensorsFile::open(tmp / "f");
  EXPECT_EQ(file.tensors().size(), 17U);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"one", "1"}, {"two", "\"\n"}}));
  for (const auto& [name, bytes] : content) {
    EXPECT_EQ(file.info(name).dtype, dtype_from_name(name));
    EXPECT_EQ(dtype_name(file.info(name).dtype), name);
    EXPECT_EQ(file.info(name).shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(file.info(name).elements(), 6);
    const auto read = file.read(name);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.data()), read.size()), bytes) << name;
  }
  EXPECT_EQ(file.info("scalar").elements(), 1);
  EXPECT_EQ(file.read("scalar").size(), 4U);
  EXPECT_EQ(file.info("empty").elements(), 0);
  EXPECT_TRUE(file.read("empty").empty());
  std::string part(3, '?');
  file.read_at("F64", 5, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, content["F64"].substr(5, 3));
  EXPECT_THROW(dtype_from_name("F4"), base::DataError);
}

TEST(Safetensors, SameInputSameBytesAndNothingLeftBehind) {
  const TempDir tmp;
  TensorSet set;
  set.add("z", Dtype::f32, {5});
  set.add("a", Dtype::i64, {2});
  write_safetensors(tmp / "one", set.list(), {{"b", "2"}, {"a", "1"}});
  write_safetensors(tmp / "two", set.list(), {{"a", "1"}, {"b", "2"}});
  write_safetensors(tmp / "two", set.list(), {{"a", "1"}, {"b", "2"}});  // replaces
  EXPECT_EQ(base::read_text(tmp / "one"), base::read_text(tmp / "two"));
  const auto entries = std::distance(std::filesystem::directory_iterator(tmp.path()), std::filesystem::directory_iterator());
  EXPECT_EQ(entries, 2);
}

TEST(Safetensors, RefusesMisuse) {
  const TempDir tmp;
  const std::string four = "1234";
  const auto one = [&](const std::string& name, std::vector<std::int64_t> shape) {
    return std::vector<TensorToWrite>{{name, Dtype::f32, std::move(shape), test::as_bytes(four)}};
  };
  EXPECT_THROW(write_safetensors(tmp / "f", one("a", {2})), base::Bug);
  EXPECT_THROW(write_safetensors(tmp / "f", one("a", {-1})), base::Bug);
  EXPECT_THROW(write_safetensors(tmp / "f", one("__metadata__", {1})), base::Bug);
  auto twice = one("a", {1});
  twice.push_back(twice[0]);
  EXPECT_THROW(write_safetensors(tmp / "f", twice), base::Bug);
  EXPECT_FALSE(std::filesystem::exists(tmp / "f"));

  write_safetensors(tmp / "f", one("a", {1}));
  const auto file = SafetensorsFile::open(tmp / "f");
  std::vector<std::byte> five(5);
  EXPECT_THROW(file.read("a", five), base::Bug);
  EXPECT_THROW(file.read_at("a", 1, std::span(five).first(4)), base::Bug);
  EXPECT_THROW(file.read_at("a", -1, std::span(five).first(1)), base::Bug);
  EXPECT_THROW(file.read("b"), base::DataError);
  EXPECT_THROW(SafetensorsFile::open(tmp / "missing"), base::MissingInputError);
}

TEST(Safetensors, ACutOrPaddedFileIsRefusedOnOpening) {
  const TempDir tmp;
  TensorSet set;
  set.add("a", Dtype::f32, {4});
  write_safetensors(tmp / "f", set.list());
  const auto whole = base::read_text(tmp / "f");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    test::write_file(tmp / "cut", whole.substr(0, n));
    EXPECT_THROW(SafetensorsFile::open(tmp / "cut"), base::DataError) << n;
  }
  test::write_file(tmp / "cut", whole + "x");
  EXPECT_THROW(SafetensorsFile::open(tmp / "cut"), base::DataError);
}

}  // namespace
}  // namespace aerie::interchange
