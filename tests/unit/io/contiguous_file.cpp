// SPDX-License-Identifier: Apache-2.0
// ContiguousFile against files that h5py wrote with its defaults (make_h5py_golden.py says what is in them), and against
// damaged copies of them.
#include <aerie/io/contiguous_file.hpp>

#include <fstream>
#include <limits>

#include <aerie/base/error.hpp>

#include <gtest/gtest.h>

#include "temp_dir.hpp"

namespace {
using aerie::io::ContiguousFile;
using aerie::io::ElementType;
const std::filesystem::path here = AERIE_IO_TEST_DIR;

TEST(ContiguousFile, ReadsWhatH5pyWrote) {
  const auto f = ContiguousFile::open(here / "h5py_golden.h5");
  EXPECT_EQ(f.datasets().size(), 11U);
  EXPECT_EQ(f.read_all<std::uint8_t>("u8"), (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(f.dataset("u16").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(f.read_all<std::uint16_t>("u16"), (std::vector<std::uint16_t>{0, 1000, 2000, 3000, 4000, 5000}));
  EXPECT_EQ(f.read_all<std::int32_t>("i32"), (std::vector<std::int32_t>{-1, 2, std::numeric_limits<std::int32_t>::min()}));
  EXPECT_EQ(f.read_all<std::int64_t>("i64"), (std::vector<std::int64_t>{-5, std::int64_t{1} << 40}));
  EXPECT_EQ(f.read_all<std::uint64_t>("u64"), (std::vector<std::uint64_t>{~std::uint64_t{0}}));
  EXPECT_EQ(f.read_all<float>("f32"), (std::vector<float>{1.5F, -0.25F}));
  EXPECT_EQ(f.read_all<double>("f64"), (std::vector<double>{0.1}));
  EXPECT_EQ(f.dataset("text").type, ElementType::text);
  EXPECT_EQ(f.dataset("text").element_bytes, 3);
  EXPECT_EQ(f.dataset("record").type, ElementType::record);
  EXPECT_EQ(f.dataset("record").element_bytes, 16);
  std::vector<std::uint16_t> middle(2);
  f.read("u16", 3, 2, middle.data());
  EXPECT_EQ(middle, (std::vector<std::uint16_t>{3000, 4000}));
}

TEST(ContiguousFile, EmptyDatasetsAreLegal) {
  const auto f = ContiguousFile::open(here / "h5py_golden.h5");
  EXPECT_TRUE(f.read_all<std::int32_t>("empty").empty());
  EXPECT_EQ(f.dataset("empty2").shape, (std::vector<std::int64_t>{0, 12}));
  EXPECT_EQ(f.dataset("empty2").bytes(), 0);
}

TEST(ContiguousFile, ReadsAttributes) {
  const auto f = ContiguousFile::open(here / "h5py_golden.h5");
  EXPECT_EQ(f.text("vlen"), "h\xc3\xa9llo");
  EXPECT_EQ(f.text("fixed"), "fixed");
  EXPECT_EQ(f.text("blank"), "");
  EXPECT_EQ(f.text("blank_fixed"), "");
  EXPECT_EQ(f.integer("number"), 42);
  EXPECT_EQ(f.integer("small"), -3);
  EXPECT_EQ(f.integer("one"), 9);
  EXPECT_EQ(f.integer("flag"), 1);
  EXPECT_EQ(std::get<double>(f.attributes().at("eps")), 1e-6);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(f.attributes().at("list")), (std::vector<std::int64_t>{2, 30, 58}));
  EXPECT_EQ(f.attributes().count("floats"), 0U);
  EXPECT_THROW(f.integer("absent"), aerie::base::DataError);
  EXPECT_THROW(f.integer("vlen"), aerie::base::DataError);
  EXPECT_THROW(f.text("number"), aerie::base::DataError);
}

TEST(ContiguousFile, RefusesReadsOutsideADataset) {
  const auto f = ContiguousFile::open(here / "h5py_golden.h5");
  std::int32_t out[8];
  EXPECT_THROW(f.read("i32", 2, 2, out), aerie::base::DataError);
  EXPECT_THROW(f.read("i32", -1, 1, out), aerie::base::DataError);
  EXPECT_THROW(f.read("i32", 1, std::numeric_limits<std::int64_t>::max(), out), aerie::base::DataError);
  EXPECT_THROW(f.read("absent", 0, 1, out), aerie::base::DataError);
  EXPECT_THROW(f.read_all<std::int64_t>("i32"), aerie::base::DataError);
}

TEST(ContiguousFile, NamesWhatIsWrong) {
  EXPECT_THROW(ContiguousFile::open(here / "absent.h5"), aerie::base::MissingInputError);
  try {
    ContiguousFile::open(here / "h5py_chunked.h5");
    FAIL() << "a chunked dataset was accepted";
  } catch (const aerie::base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find("h5py_chunked.h5: x"), std::string::npos) << e.what();
  }
  EXPECT_THROW(ContiguousFile::open(here / "h5py_big_endian.h5"), aerie::base::DataError);
}

TEST(ContiguousFile, RefusesForeignAndTruncatedFiles) {
  const aerie::test::TempDir dir;
  std::ofstream(dir / "text.h5") << "this is not HDF5";
  try {
    ContiguousFile::open(dir / "text.h5");
    FAIL() << "text was accepted as HDF5";
  } catch (const aerie::base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find("HDF5: "), std::string::npos) << "no reason of HDF5's own in: " << e.what();
  }
  std::ofstream(dir / "nothing.h5").flush();
  EXPECT_THROW(ContiguousFile::open(dir / "nothing.h5"), aerie::base::DataError);
  std::filesystem::copy_file(here / "h5py_golden.h5", dir / "cut.h5");
  std::filesystem::resize_file(dir / "cut.h5", std::filesystem::file_size(dir / "cut.h5") - 1);
  EXPECT_THROW(ContiguousFile::open(dir / "cut.h5"), aerie::base::DataError);
}

}  // namespace
