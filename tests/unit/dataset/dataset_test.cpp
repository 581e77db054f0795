// SPDX-License-Identifier: Apache-2.0
// The reader against files made with HDF5 here, whole and damaged in every field; never by the writer under test.
#include <aerie/dataset/dataset.hpp>

#include <fstream>
#include <map>
#include <variant>

#include <hdf5.h>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>

#include <gtest/gtest.h>

#include "temp_dir.hpp"

namespace {
using namespace aerie::dataset;
using aerie::base::DataError;
using aerie::io::FailReason;
using aerie::test::TempDir;

using Column = std::variant<std::vector<std::int32_t>, std::vector<std::int64_t>, std::vector<std::uint8_t>>;
struct Content {
  std::map<std::string, Column> columns;
  std::map<std::string, std::variant<std::int64_t, std::string>> attributes;
};
std::vector<std::uint8_t> text(const std::string& s) { return {s.begin(), s.end()}; }

/// Three samples: tokens 10 11 12 | rejected NO_LOSS | 13 14.
Content good() {
  Content c;
  c.columns["input_ids"] = std::vector<std::int32_t>{10, 11, 12, 13, 14};
  c.columns["loss_mask"] = std::vector<std::uint8_t>{0, 1, 1, 0, 1};
  c.columns["offsets"] = std::vector<std::int64_t>{0, 3, 3, 5};
  c.columns["reject"] = std::vector<std::uint8_t>{0, 3, 0};
  c.columns["source_line"] = std::vector<std::int64_t>{1, 2, 4};
  c.columns["id_offsets"] = std::vector<std::int64_t>{0, 1, 4, 4};
  c.columns["id_bytes"] = text("a\xe2\x82\xac");
  c.columns["note_offsets"] = std::vector<std::int64_t>{0, 0, 3, 3};
  c.columns["note_bytes"] = text("why");
  std::string bytes;
  const auto put = [&](auto v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
  const auto sample = [&](std::uint8_t reject, std::vector<std::int32_t> ids, std::vector<std::uint8_t> mask) {
    put(static_cast<std::int64_t>(ids.size()));
    put(reject);
    for (const auto i : ids) put(i);
    for (const auto m : mask) put(m);
  };
  sample(0, {10, 11, 12}, {0, 1, 1});
  sample(3, {}, {});
  sample(0, {13, 14}, {0, 1});
  c.attributes = {{"schema", "aerie-dataset"},
                  {"schema_version", 1},
                  {"n_samples", 3},
                  {"n_tokens", 5},
                  {"n_loss_tokens", 3},
                  {"n_truncated", 0},
                  {"max_length", 16},
                  {"overlength", "truncate"},
                  {"vocab_size", 20},
                  {"tokenizer_hash", "sha256:t"},
                  {"dataset_hash", aerie::base::xxh3_128_tagged(bytes)},
                  {"source", "x.jsonl"},
                  {"producer", "test"}};
  return c;
}

void write(const std::filesystem::path& path, const Content& c) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (const auto& [name, column] : c.columns)
    std::visit(
        [&, &name = name](const auto& v) {
          using T = typename std::decay_t<decltype(v)>::value_type;
          const hid_t type = sizeof(T) == 1 ? H5T_STD_U8LE : sizeof(T) == 4 ? H5T_STD_I32LE : H5T_STD_I64LE;
          const hsize_t n = v.size();
          const hid_t space = H5Screate_simple(1, &n, nullptr);
          const hid_t d = H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
          if (n > 0) H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v.data());
          H5Dclose(d);
          H5Sclose(space);
        },
        column);
  const hid_t scalar = H5Screate(H5S_SCALAR);
  for (const auto& [name, value] : c.attributes) {
    const auto* number = std::get_if<std::int64_t>(&value);
    const hid_t type = number ? H5Tcopy(H5T_STD_I64LE) : H5Tcopy(H5T_C_S1);
    if (!number) H5Tset_size(type, std::get<std::string>(value).size());
    const hid_t a = H5Acreate2(file, name.c_str(), type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, number ? static_cast<const void*>(number) : std::get<std::string>(value).data());
    H5Aclose(a);
    H5Tclose(type);
  }
  H5Sclose(scalar);
  H5Fclose(file);
}

TEST(Dataset, ReadsWhatIsThere) {
  const TempDir dir;
  write(dir / "d.h5", good());
  const auto d = Dataset::open(dir / "d.h5");
  EXPECT_EQ(d.size(), 3);
  EXPECT_EQ(d.n_tokens(), 5);
  EXPECT_EQ(d.length(0), 3);
  EXPECT_EQ(d.length(1), 0);
  EXPECT_EQ(d.reject(0), FailReason::none);
  EXPECT_EQ(d.reject(1), FailReason::no_loss);
  EXPECT_EQ(d.id(0), "a");
  EXPECT_EQ(d.id(1), "\xe2\x82\xac");
  EXPECT_EQ(d.id(2), "");
  EXPECT_EQ(d.note(1), "why");
  EXPECT_EQ(d.note(2), "");
  EXPECT_EQ(d.source_line(2), 4);
  EXPECT_EQ(d.vocab_size(), 20);
  EXPECT_EQ(d.max_length(), 16);
  EXPECT_EQ(d.tokenizer_hash(), "sha256:t");
  Tokens t;
  d.read(2, t);
  EXPECT_EQ(t.ids, (std::vector<std::int32_t>{13, 14}));
  EXPECT_EQ(t.mask, (std::vector<std::uint8_t>{0, 1}));
  d.read(1, t);
  EXPECT_TRUE(t.ids.empty());
  EXPECT_NO_THROW(d.verify());
  EXPECT_THROW(d.read(3, t), aerie::base::Bug);
  EXPECT_THROW(d.id(-1), aerie::base::Bug);
}

TEST(Dataset, DamageIsADataErrorThatNamesTheFile) {
  using I64 = std::vector<std::int64_t>;
  using U8 = std::vector<std::uint8_t>;
  const TempDir dir;
  const std::map<std::string, std::function<void(Content&)>> damages{
      {"no schema", [](Content& c) { c.attributes.erase("schema"); }},
      {"other schema", [](Content& c) { c.attributes["schema"] = "aerie-store"; }},
      {"version", [](Content& c) { c.attributes["schema_version"] = 2; }},
      {"schema is a number", [](Content& c) { c.attributes["schema"] = 1; }},
      {"no hash", [](Content& c) { c.attributes.erase("dataset_hash"); }},
      {"negative count", [](Content& c) { c.attributes["n_samples"] = -1; }},
      {"huge count", [](Content& c) { c.attributes["n_samples"] = INT64_MAX; }},
      {"fewer samples", [](Content& c) { c.attributes["n_samples"] = 2; }},
      {"more tokens", [](Content& c) { c.attributes["n_tokens"] = 6; }},
      {"no ids", [](Content& c) { c.columns.erase("input_ids"); }},
      {"ids are i64",
       [](Content& c) {
         c.columns["input_ids"] = I64{1, 2, 3, 4, 5};
       }},
      {"short mask",
       [](Content& c) {
         c.columns["loss_mask"] = U8{0, 1};
       }},
      {"offsets go down",
       [](Content& c) {
         c.columns["offsets"] = I64{0, 4, 3, 5};
       }},
      {"offsets start late",
       [](Content& c) {
         c.columns["offsets"] = I64{1, 3, 3, 5};
       }},
      {"offsets end early",
       [](Content& c) {
         c.columns["offsets"] = I64{0, 3, 3, 4};
       }},
      {"offsets short",
       [](Content& c) {
         c.columns["offsets"] = I64{0, 3, 5};
       }},
      {"id offsets",
       [](Content& c) {
         c.columns["id_offsets"] = I64{0, 9, 9, 4};
       }},
      {"note offsets",
       [](Content& c) {
         c.columns["note_offsets"] = I64{0, 0, 3, 400};
       }},
      {"unknown reason",
       [](Content& c) {
         c.columns["reject"] = U8{0, 200, 0};
       }},
      {"rejected with tokens",
       [](Content& c) {
         c.columns["reject"] = U8{1, 3, 0};
       }},
      {"accepted without", [](Content& c) {
         c.columns["reject"] = U8{0, 0, 0};
       }}};
  for (const auto& [name, damage] : damages) {
    auto c = good();
    damage(c);
    write(dir / "d.h5", c);
    try {
      Dataset::open(dir / "d.h5");
      ADD_FAILURE() << name << ": opened";
    } catch (const DataError& e) {
      EXPECT_NE(std::string(e.what()).find("d.h5"), std::string::npos) << name << ": " << e.what();
    }
  }
}

TEST(Dataset, BadTokensAreNamedWhenRead) {
  const TempDir dir;
  Tokens t;
  for (const std::int32_t bad : {20, -1}) {
    auto c = good();
    c.columns["input_ids"] = std::vector<std::int32_t>{10, 11, 12, 13, bad};
    write(dir / "d.h5", c);
    const auto d = Dataset::open(dir / "d.h5");
    EXPECT_NO_THROW(d.read(0, t));
    EXPECT_THROW(d.read(2, t), DataError);
    EXPECT_THROW(d.verify(), DataError);
  }
  auto c = good();
  c.columns["loss_mask"] = std::vector<std::uint8_t>{0, 2, 1, 0, 1};
  write(dir / "d.h5", c);
  EXPECT_THROW(Dataset::open(dir / "d.h5").read(0, t), DataError);
}

TEST(Dataset, VerifyFindsEveryFlippedByte) {
  const TempDir dir;
  for (std::size_t at = 0; at < 5; ++at) {
    auto c = good();
    std::get<std::vector<std::uint8_t>>(c.columns["loss_mask"])[at] ^= 1;
    write(dir / "d.h5", c);
    EXPECT_THROW(Dataset::open(dir / "d.h5").verify(), DataError) << at;
  }
  auto c = good();
  c.columns["reject"] = std::vector<std::uint8_t>{0, 1, 0};
  write(dir / "d.h5", c);
  EXPECT_THROW(Dataset::open(dir / "d.h5").verify(), DataError);
}

TEST(Dataset, NotThereAndNotHdf5) {
  const TempDir dir;
  EXPECT_THROW(Dataset::open(dir / "gone.h5"), aerie::base::MissingInputError);
  std::ofstream(dir / "text.h5") << "not HDF5 at all";
  EXPECT_THROW(Dataset::open(dir / "text.h5"), DataError);
  std::ofstream(dir / "empty.h5").close();
  EXPECT_THROW(Dataset::open(dir / "empty.h5"), DataError);
  write(dir / "d.h5", good());
  std::filesystem::resize_file(dir / "d.h5", std::filesystem::file_size(dir / "d.h5") / 2);
  EXPECT_THROW(Dataset::open(dir / "d.h5"), DataError);
}
}  // namespace
