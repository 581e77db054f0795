// SPDX-License-Identifier: Apache-2.0
// JSON lines: a torn line is lost alone, wherever the tear was; damage is told with its line.
#include <aerie/base/json.hpp>

#include <fstream>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;

namespace {
const std::string whole = R"({"kind":"phase","evidence":{"n":[1,2],"text":"a \"quoted}\" \\"},"time":"t"})";
void put(const std::filesystem::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
}  // namespace

TEST(JsonLines, MissingFileHasNoLines) {
  aerie::test::TempDir dir;
  EXPECT_TRUE(base::read_json_lines(dir / "none").empty());
  put(dir / "empty", "");
  EXPECT_TRUE(base::read_json_lines(dir / "empty").empty());
}

TEST(JsonLines, EveryTearLosesOneLineOnly) {
  aerie::test::TempDir dir;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    const auto path = dir / ("l" + std::to_string(cut));
    put(path, "{\"a\":1}\n" + whole.substr(0, cut));
    EXPECT_EQ(base::read_json_lines(path).size(), 1U) << "torn after " << cut << " bytes";
    base::append_line(path, "{\"b\":2}");
    const auto lines = base::read_json_lines(path);
    ASSERT_EQ(lines.size(), 2U) << "torn after " << cut << " bytes, then appended";
    EXPECT_EQ(lines[1].at("b"), 2);
  }
}

TEST(JsonLines, ZeroBytesAfterAPowerCutAreATear) {
  aerie::test::TempDir dir;
  for (const std::size_t kept : {std::size_t{0}, std::size_t{20}}) {
    const auto path = dir / ("z" + std::to_string(kept));
    put(path, "{\"a\":1}\n" + whole.substr(0, kept) + std::string(100, '\0'));
    EXPECT_EQ(base::read_json_lines(path).size(), 1U);
    base::append_line(path, "{\"b\":2}");
    EXPECT_EQ(base::read_json_lines(path).size(), 2U);
  }
}

TEST(JsonLines, DamageInTheMiddleIsToldWithItsLine) {
  aerie::test::TempDir dir;
  put(dir / "l", "{\"a\":1}\n{\"a\" 2}\n{\"a\":3}\n");
  try {
    base::read_json_lines(dir / "l");
    FAIL() << "a damaged line passed";
  } catch (const base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find(":2:"), std::string::npos) << e.what();
  }
}

TEST(Json, ErrorsNameTheOriginAndHashesDoNotDependOnKeyOrder) {
  try {
    base::parse_json("{", "place");
    FAIL() << "bad JSON passed";
  } catch (const base::DataError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("place: ", 0), 0U);
  }
  EXPECT_EQ(base::canonical(base::parse_json("{ \"b\": 1, \"a\": [1, 2] }", "")), "{\"a\":[1,2],\"b\":1}");
  aerie::test::TempDir dir;
  EXPECT_THROW(base::read_json(dir / "none"), base::MissingInputError);
}
