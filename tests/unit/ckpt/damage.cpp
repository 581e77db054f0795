// SPDX-License-Identifier: Apache-2.0
// Damage of every kind is told by verify, and by open or the read that meets it; no damaged byte is ever returned.
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include "sample.hpp"
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace ckpt = aerie::ckpt;
namespace fs = std::filesystem;
using aerie::test::make_request;
using aerie::test::make_vectors;

namespace {
void flip(const fs::path& path, std::int64_t at) {
  std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const int c = f.get();
  f.seekp(at);
  f.put(static_cast<char>(c ^ 0x10));
}
void edit_manifest(const fs::path& dir, const std::function<void(base::Json&)>& edit, bool mend_hash) {
  auto m = base::read_json(dir / "MANIFEST.json");
  edit(m);
  if (mend_hash) {
    m.erase("manifest_hash");
    m["manifest_hash"] = base::sha256_tagged(m.dump());
  }
  std::ofstream(dir / "MANIFEST.json") << m.dump();
}

/// Two checkpoints of three files each, as three ranks would write them (made by one process: the chunks' places are all that
/// differs).
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    for (const int step : {1, 2}) {
      auto saved =
          ckpt::save(aerie::comm::Comm::solo(), make_request(dir / "c", step, vectors[static_cast<std::size_t>(step - 1)]));
      spread(saved.path);
    }
    ASSERT_EQ(ckpt::verify(two()), std::vector<std::string>{});
  }
  /// Moves the chunks of chunk-0000.bin into three files of it.
  static void spread(const fs::path& path) {
    const auto whole = base::read_text(path / "chunk-0000.bin");
    std::map<std::string, std::string> files;
    edit_manifest(
        path,
        [&](base::Json& m) {
          int turn = 0;
          for (auto& c : m["chunks"]) {
            const std::string name = "chunk-000" + std::to_string(turn++ % 3) + ".bin";
            const auto bytes = whole.substr(c["offset"].get<std::size_t>(), c["bytes"].get<std::size_t>());
            c["file"] = name;
            c["offset"] = files[name].size();
            files[name] += bytes;
          }
          m["files"] = base::Json::array();
          for (const auto& [name, content] : files) m["files"].push_back({{"name", name}, {"bytes", content.size()}});
        },
        true);
    for (const auto& [name, content] : files) std::ofstream(path / name, std::ios::binary) << content;
  }
  fs::path root() const { return dir / "c"; }
  fs::path two() const { return root() / "step-00000002"; }

  /// Cheap damage: open refuses with `code`, verify tells it, latest falls back to step 1, says why, and sets the directory
  /// aside.
  void expect_refused(base::ExitCode code, const std::string& told) {
    const auto error = base::capture([&] { ckpt::open(two()); });
    ASSERT_TRUE(error) << "open accepted it";
    EXPECT_EQ(error->code(), code) << error->what();
    EXPECT_NE(std::string(error->what()).find(told), std::string::npos) << error->what();
    const auto faults = ckpt::verify(two());
    ASSERT_FALSE(faults.empty());
    EXPECT_NE(faults.front().find(told), std::string::npos) << faults.front();
    std::string log;
    EXPECT_EQ(ckpt::latest(root(), false, [&](const std::string& t) { log += t; })->step, 1);
    EXPECT_NE(log.find(told), std::string::npos) << log;
    EXPECT_TRUE(fs::exists(two())) << "renamed although not asked to";
    EXPECT_EQ(ckpt::latest(root(), true)->step, 1);
    EXPECT_FALSE(fs::exists(two()));
    EXPECT_TRUE(fs::exists(root() / "step-00000002.bad"));
  }
  /// Damage inside a file: open cannot see it, verify names file and chunk, and reading the chunk throws 65.
  void expect_found_while_reading(const std::string& file, std::size_t faults_expected) {
    const auto opened = ckpt::open(two());
    const auto faults = ckpt::verify(two());
    EXPECT_EQ(faults.size(), faults_expected);
    ASSERT_FALSE(faults.empty());
    EXPECT_NE(faults.front().find(file), std::string::npos) << faults.front();
    std::size_t thrown = 0;
    for (const auto& [name, bytes] : vectors[1]) {
      const auto error = base::capture([&] { EXPECT_TRUE(ckpt::read_vector(opened, name) == bytes); });
      if (!error) continue;
      ++thrown;
      EXPECT_EQ(error->code(), base::ExitCode::data);
      EXPECT_NE(std::string(error->what()).find("chunk"), std::string::npos);
      EXPECT_THROW(ckpt::vector_sha256(opened, name), base::DataError);
    }
    EXPECT_GE(thrown, 1U);
  }
  aerie::test::TempDir dir;
  static aerie::test::Vectors small(std::uint64_t seed) {  // two files of one size, so that a swap shows in no length
    return make_vectors(seed, {{"masters", 5000}, {"exp_avg", 5000}, {"short", 12}, {"none", 0}});
  }
  std::vector<aerie::test::Vectors> vectors{small(1), small(2)};
};
}  // namespace

TEST_F(Damage, FileCutShort) {
  fs::resize_file(two() / "chunk-0001.bin", fs::file_size(two() / "chunk-0001.bin") - 1);
  expect_refused(base::ExitCode::data, "chunk-0001.bin");
}
TEST_F(Damage, FileGrown) {
  fs::resize_file(two() / "chunk-0001.bin", fs::file_size(two() / "chunk-0001.bin") + 1);
  expect_refused(base::ExitCode::data, "chunk-0001.bin");
}
TEST_F(Damage, FileRemoved) {
  fs::remove(two() / "chunk-0002.bin");
  expect_refused(base::ExitCode::missing_input, "chunk-0002.bin");
}
TEST_F(Damage, ABitInEachFile) {
  for (const std::string file : {"chunk-0000.bin", "chunk-0001.bin", "chunk-0002.bin"}) {
    const auto at = static_cast<std::int64_t>(fs::file_size(two() / file)) - 1;
    flip(two() / file, at);
    expect_found_while_reading(file, 1);
    flip(two() / file, at);
    EXPECT_EQ(ckpt::verify(two()), std::vector<std::string>{});
  }
}
TEST_F(Damage, ABitInTheManifest) {
  const auto text = base::read_text(two() / "MANIFEST.json");
  for (std::size_t at = 0; at < text.size(); at += 97) {
    auto damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    if (std::isspace(static_cast<unsigned char>(text[at])) && std::isspace(static_cast<unsigned char>(damaged[at]))) continue;
    std::ofstream(two() / "MANIFEST.json", std::ios::binary) << damaged;
    EXPECT_THROW(ckpt::open(two()), base::DataError) << "bit 0 of byte " << at;
  }
  expect_refused(base::ExitCode::data, "MANIFEST.json");
}
TEST_F(Damage, TwoFilesSwapped) {
  const auto a = two() / "chunk-0000.bin", b = two() / "chunk-0001.bin", t = two() / "t";
  fs::rename(a, t), fs::rename(b, a), fs::rename(t, b);
  expect_found_while_reading("chunk-0000.bin", 2);
}
TEST_F(Damage, TwoCheckpointsSwapped) {
  const auto one = root() / "step-00000001", t = root() / "t";
  fs::rename(one, t), fs::rename(two(), one), fs::rename(t, two());
  for (const auto& dir_of : {one, two()}) EXPECT_THROW(ckpt::open(dir_of), base::DataError);
  EXPECT_FALSE(ckpt::latest(root(), true));
}
TEST_F(Damage, FileOfAnotherCheckpoint) {
  fs::copy_file(root() / "step-00000001" / "chunk-0000.bin", two() / "chunk-0000.bin", fs::copy_options::overwrite_existing);
  expect_found_while_reading("chunk-0000.bin", 1);  // sizes alike
}
TEST_F(Damage, ManifestOfAnotherCheckpoint) {
  fs::copy_file(root() / "step-00000001" / "MANIFEST.json", two() / "MANIFEST.json", fs::copy_options::overwrite_existing);
  expect_refused(base::ExitCode::data, "is of step 1");
}
TEST_F(Damage, ManifestHashDoesNotHold) {
  edit_manifest(
      two(), [](base::Json& m) { m["position"]["packs"] = 9; }, false);
  expect_refused(base::ExitCode::data, "manifest_hash");
}
TEST_F(Damage, ManifestCut) {
  fs::resize_file(two() / "MANIFEST.json", fs::file_size(two() / "MANIFEST.json") / 2);
  expect_refused(base::ExitCode::data, "not valid JSON");
}
TEST_F(Damage, ManifestEmpty) {
  fs::resize_file(two() / "MANIFEST.json", 0);
  expect_refused(base::ExitCode::data, "not valid JSON");
}
TEST_F(Damage, ManifestMissing) {
  fs::remove(two() / "MANIFEST.json");
  expect_refused(base::ExitCode::missing_input, "MANIFEST.json");
}
TEST_F(Damage, ManifestsThatLieAreRefusedThoughTheyHashWell) {
  const auto good = base::read_text(two() / "MANIFEST.json");
  using Edit = std::function<void(base::Json&)>;
  const std::vector<Edit> lies{
      [](base::Json& m) { m["files"][0]["name"] = "../step-00000001/chunk-0000.bin"; },
      [](base::Json& m) { m["files"][0]["name"] = ".."; },
      [](base::Json& m) { m["chunks"][0]["offset"] = -1; },
      [](base::Json& m) { m["chunks"][0]["offset"] = std::int64_t{1} << 62; },
      [](base::Json& m) { m["chunks"][0]["bytes"] = 5; },
      [](base::Json& m) { m["chunks"][0]["file"] = "other"; },
      [](base::Json& m) { m["chunks"].erase(1); },
      [](base::Json& m) { m["chunks"].push_back(m["chunks"][0]); },
      [](base::Json& m) { std::swap(m["chunks"][0], m["chunks"][1]); },
      [](base::Json& m) { m["vectors"][0]["bytes"] = std::int64_t{1} << 62; },
      [](base::Json& m) { m["vectors"][0]["bytes"] = std::numeric_limits<std::int64_t>::max(); },
      [](base::Json& m) { m["vectors"][1]["name"] = "masters"; },
      [](base::Json& m) { m["vectors"] = 3; },
      [](base::Json& m) { m["chunks"][0] = "text"; },
      [](base::Json& m) { m["files"].push_back(m["files"][0]); },
      [](base::Json& m) { m["schema"] = "other"; },
      [](base::Json& m) { m.erase("identity"); },
      [](base::Json& m) { m["step"] = "2"; },
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    std::ofstream(two() / "MANIFEST.json") << good;
    edit_manifest(two(), lies[i], true);
    EXPECT_THROW(ckpt::open(two()), base::DataError) << "lie " << i;
  }
  for (const char* text : {"[]", "3", "null", "{}", "\"text\""}) {
    std::ofstream(two() / "MANIFEST.json") << text;
    EXPECT_THROW(ckpt::open(two()), base::DataError) << text;
  }
}
TEST_F(Damage, NewerFormatIsRefusedAndNotSetAside) {
  edit_manifest(
      two(), [](base::Json& m) { m["version"] = 2; }, true);
  EXPECT_THROW(ckpt::open(two()), base::RefusedError);
  EXPECT_THROW(ckpt::latest(root(), true), base::RefusedError);
  EXPECT_TRUE(fs::exists(two()));
}
TEST_F(Damage, SeveralFaultsAreAllTold) {
  fs::remove(two() / "chunk-0002.bin");
  flip(two() / "chunk-0000.bin", 0);
  flip(two() / "chunk-0001.bin", 0);
  EXPECT_EQ(ckpt::verify(two()).size(), 3U);
  EXPECT_THROW(ckpt::verify(root() / "step-00000009"), base::MissingInputError);
}
