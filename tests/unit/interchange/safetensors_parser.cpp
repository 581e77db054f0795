// SPDX-License-Identifier: Apache-2.0
// The header parser on hostile input: one test for each promise of the header comment, then 20,000 mutations of a valid header.
#include <aerie/interchange/safetensors.hpp>

#include <gtest/gtest.h>
#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

#include "model_fixture.hpp"

namespace aerie::interchange {
namespace {

std::string with_length(const std::string& json) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(json.size() >> (8 * i) & 0xffU);
  return out + json;
}

/// Parses `json` as the header of a file with `data_bytes` bytes of data.
SafetensorsHeader parse(const std::string& json, std::int64_t data_bytes) {
  const auto head = with_length(json);
  return parse_safetensors_header(test::as_bytes(head), static_cast<std::int64_t>(head.size()) + data_bytes, "x.safetensors");
}

/// The DataError's message, which must name the origin.
std::string refusal(const std::string& json, std::int64_t data_bytes) {
  try {
    parse(json, data_bytes);
  } catch (const base::DataError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("x.safetensors", 0), 0U) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "not refused: " << json;
  return {};
}
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}
#define EXPECT_SAYS(message, word) EXPECT_NE((message).find(word), std::string::npos) << (message)

TEST(SafetensorsParser, AcceptsWhatIsValid) {
  const auto h =
      parse(R"({"t":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"e":{"dtype":"I8","shape":[0],"data_offsets":[8,8]},)"
            R"("u":{"dtype":"U8","shape":[],"data_offsets":[8,9]},"__metadata__":{"a":"b"}}   )",
            9);
  EXPECT_EQ(h.tensors.size(), 3U);
  EXPECT_EQ(h.metadata.at("a"), "b");
  EXPECT_EQ(h.tensors.at("t").bytes(), 8);
  EXPECT_EQ(h.tensors.at("u").begin, h.tensors.at("t").end);
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
}

TEST(SafetensorsParser, HeaderLength) {
  const auto raw = [](const std::string& head, std::int64_t bytes) {
    try {
      parse_safetensors_header(test::as_bytes(head), bytes, "x.safetensors");
    } catch (const base::DataError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_SAYS(raw("", 0), "too few");
  EXPECT_SAYS(raw("1234567", 7), "too few");
  EXPECT_SAYS(raw(std::string("\x03\0\0\0\0\0\0\0{}", 10), 10), "past the end");                 // past the file
  EXPECT_SAYS(raw(std::string("\x03\0\0\0\0\0\0\0{}", 10), 100), "past the end");                // past the bytes given
  EXPECT_SAYS(raw(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), 1'000'000'000), "100 MB");      // 100,000,001
  EXPECT_SAYS(raw(std::string("\0\xe1\xf5\x05\0\0\0\0{}", 10), 1'000'000'000), "past the end");  // 100,000,000
  EXPECT_SAYS(raw(std::string(8, '\xff') + "{}", 10), "100 MB");
  EXPECT_SAYS(raw(std::string(8, '\0'), 8), "start");  // empty header
}

TEST(SafetensorsParser, BadJson) {
  for (const char* json : {"{", "{}x", "{\"t\":}", "{\"t\":1,}", "{\"t\":\"\xff\"}", "{\"a\":1e999}"})
    EXPECT_SAYS(refusal(json, 0), "JSON");
  for (const char* json : {"[]", " {}", "null", "1"}) EXPECT_SAYS(refusal(json, 0), "start");
  EXPECT_SAYS(refusal("{\"t\":" + std::string(100'000, '[') + "}", 0), "deep");
  std::string nested = "{\"t\":";
  for (int i = 0; i < 50'000; ++i) nested += "{\"a\":";
  EXPECT_SAYS(refusal(nested, 0), "deep");
  EXPECT_SAYS(
      refusal(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
      "twice");
}

TEST(SafetensorsParser, BadEntries) {
  EXPECT_SAYS(refusal(R"({"t":1})", 0), "object");
  EXPECT_SAYS(refusal(R"({"t":{}})", 0), "dtype");
  EXPECT_SAYS(refusal(R"({"t":{"dtype":"U8"}})", 0), "shape");
  EXPECT_SAYS(refusal(R"({"t":{"dtype":"U8","shape":[1]}})", 1), "data_offsets");
  EXPECT_SAYS(refusal(tensor("\"F4\"", "[1]", "[0,1]"), 1), "unknown dtype 'F4'");
  EXPECT_SAYS(refusal(tensor("\"bf16\"", "[1]", "[0,2]"), 2), "unknown dtype");
  EXPECT_SAYS(refusal(tensor("8", "[1]", "[0,1]"), 1), "dtype");
  EXPECT_SAYS(refusal(R"({"__metadata__":{"a":1}})", 0), "__metadata__");
  EXPECT_SAYS(refusal(R"({"__metadata__":[]})", 0), "__metadata__");
}

TEST(SafetensorsParser, Shapes) {
  for (const char* shape :
       {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[[]]", "[18446744073709551615]", "[9223372036854775808]", "[1e2]"})
    EXPECT_SAYS(refusal(tensor("\"U8\"", shape, "[0,1]"), 1), "shape");
  EXPECT_SAYS(refusal(tensor("\"U8\"", "{}", "[0,1]"), 1), "shape");
  EXPECT_SAYS(refusal(tensor("\"F64\"", "[1152921504606846976]", "[0,0]"), 0), "overflow");   // 2^60 * 8 = 2^63
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0), "overflow");  // 2^64 = 0
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0), "overflow");
}

TEST(SafetensorsParser, Offsets) {
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[2]", "[0,1]"), 1), "need 2");
  EXPECT_SAYS(refusal(tensor("\"F32\"", "[1]", "[0,1]"), 1), "need 4");
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[1]", "[1,0]"), 1), "backwards");
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[2]", "[0,2]"), 1), "ends at 2");
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[0]", "[5,5]"), 0), "ends at 5");
  EXPECT_SAYS(refusal(tensor("\"U8\"", "[1]", "[0,18446744073709551615]"), 1), "offsets");
  for (const char* offsets : {"[0]", "[0,1,2]", "[]", "1", "[-1,0]", "[0,1.0]", "[\"0\",1]", "{}"})
    EXPECT_SAYS(refusal(tensor("\"U8\"", "[1]", offsets), 1), "data_offsets");
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(parse(two("[2,4]", "[0,2]"), 4).tensors.size(), 2U);
  EXPECT_SAYS(refusal(two("[0,2]", "[1,3]"), 3), "overlap");
  EXPECT_SAYS(refusal(two("[0,2]", "[0,2]"), 2), "overlap");
  EXPECT_SAYS(refusal(two("[0,2]", "[3,5]"), 5), "hole of 1");
  EXPECT_SAYS(refusal(two("[1,3]", "[3,5]"), 5), "hole of 1");
  EXPECT_SAYS(refusal(two("[0,2]", "[2,4]"), 5), "belong to no tensor");
  EXPECT_SAYS(refusal("{}", 1), "belong to no tensor");
}

TEST(SafetensorsParser, MutationsNeverCrash) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"model.a":{"dtype":"BF16","shape":[3,4],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"I64","shape":[2],"data_offsets":[24,40]},"c":{"dtype":"BOOL","shape":[],"data_offsets":[40,41]},)"
      R"("d":{"dtype":"F32","shape":[1,0],"data_offsets":[41,41]}})";
  const std::string valid = with_length(json);
  const std::string_view tokens[] = {"0",
                                     "-1",
                                     "9223372036854775807",
                                     "18446744073709551615",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "\"",
                                     ",",
                                     ":",
                                     "null",
                                     "1e308",
                                     "\\u0000",
                                     "\xff",
                                     "\"F32\"",
                                     "[0,24]",
                                     "dtype",
                                     "true",
                                     " "};
  std::size_t accepted = 0, refused = 0;
  for (std::uint64_t trial = 0; trial < 20'000; ++trial) {
    std::uint64_t index = 0;
    const auto random = [&](std::uint64_t below) { return base::random_u64(7, base::Purpose::test, trial, index++) % below; };
    std::string head = valid;
    for (auto n = 1 + random(3); n > 0 && !head.empty(); --n) {
      const auto at = random(head.size());
      switch (random(5)) {
        case 0:
          head[at] = static_cast<char>(random(256));
          break;
        case 1:
          head[at] = static_cast<char>(head[at] ^ static_cast<char>(1U << random(8)));
          break;
        case 2:
          head.erase(at, 1 + random(8));
          break;
        case 3:
          head.insert(at, tokens[random(std::size(tokens))]);
          break;
        default:
          head.replace(at, 1 + random(4), tokens[random(std::size(tokens))]);
      }
    }
    // Half of the time the length is made to fit again, so that mutations reach the parts behind it.
    if (random(2) == 0 && head.size() >= 8) head = with_length(head.substr(8));
    const auto bytes = static_cast<std::int64_t>(head.size() + (random(8) == 0 ? random(64) : 41));
    const std::vector<std::byte> exact(test::as_bytes(head).begin(),
                                       test::as_bytes(head).end());  // a sanitizer sees a read past it
    try {
      const auto h = parse_safetensors_header(exact, bytes, "fuzz");
      ++accepted;
      std::int64_t sum = 0;
      for (const auto& t : h.tensors) {
        ASSERT_GE(t.second.begin, 8);
        ASSERT_LE(t.second.begin, t.second.end);
        ASSERT_LE(t.second.end, bytes);
        ASSERT_EQ(t.second.bytes(), t.second.elements() * static_cast<std::int64_t>(dtype_size(t.second.dtype)));
        sum += t.second.bytes();
      }
      ASSERT_LE(sum, bytes);
    } catch (const base::DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100U);  // the mutations are not all trivially refused
  EXPECT_GT(refused, 10'000U);
}

}  // namespace
}  // namespace aerie::interchange
