// SPDX-License-Identifier: Apache-2.0
// Stores with 8-bit states: what is read back, its error, its scales, what verify sees, and an independent reader.
#include <cmath>
#include <cstring>

#include <aerie/base/bfloat16.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/verify.hpp>

#include "store_fixture.hpp"

namespace aerie::test {
namespace {

using io::StateKind;
using io::Store;

io::StoreIdentity fp8_identity() {
  auto d = small_identity();
  d.dtype = io::StateDtype::fp8_e4m3;
  return d;
}
Store create_fp8(const std::filesystem::path& dir) {
  const auto plan = small_plan();
  Store::create(dir, fp8_identity(), plan, 100 * (4 * hidden + 16 + 5));
  return Store::open(dir);
}

/// Values as hidden states have them: most near one size, a few far larger, none beyond the row's own range of codes.
io::SampleData states(std::int64_t sample, std::int64_t tokens) {
  auto d = make_sample(sample, tokens);
  std::uint64_t n = 0;
  for (auto* v : {&d.aux, &d.last})
    for (auto& x : *v) {
      const auto r = base::random_u64(static_cast<std::uint64_t>(sample), base::Purpose::test, 9, n++);
      const double value = (static_cast<double>(r >> 11) * 0x1p-53 - 0.5) * (r % 97 == 0 ? 300.0 : 3.0);
      x = base::float_to_bf16(static_cast<float>(value));
    }
  return d;
}

/// Codes have 3 mantissa bits: half a unit is 1/16 of the value; below the smallest normal code it is scale / 1024. bf16 adds
/// 1/256.
void expect_close(const std::vector<std::uint16_t>& found, const std::vector<std::uint16_t>& expected, std::int64_t width) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t r = 0; r * static_cast<std::size_t>(width) < found.size(); ++r) {
    double amax = 0, error2 = 0, norm2 = 0;
    for (std::size_t i = r * static_cast<std::size_t>(width); i < (r + 1) * static_cast<std::size_t>(width); ++i)
      amax = std::max(amax, std::fabs(double{base::bf16_to_float(expected[i])}));
    double allowed2 = 0;
    for (std::size_t i = r * static_cast<std::size_t>(width); i < (r + 1) * static_cast<std::size_t>(width); ++i) {
      const double a = base::bf16_to_float(found[i]), b = base::bf16_to_float(expected[i]);
      const double bound = std::max(std::fabs(b) / 16, amax / 448 / 1024) + std::fabs(a) / 256;
      ASSERT_LE(std::fabs(a - b), bound) << "row " << r;
      error2 += (a - b) * (a - b), norm2 += b * b, allowed2 += bound * bound;
    }
    ASSERT_LE(std::sqrt(error2 / norm2), std::sqrt(allowed2 / norm2));
    ASSERT_LE(std::sqrt(error2 / norm2), 0.04) << "uniform in a binade, e4m3 errs by 1/16/sqrt(3) = 0.036 of the value at most";
  }
}

TEST(Fp8Store, ReadsBackWithinWhatTheFormatAllows) {
  const TempDir dir;
  auto store = create_fp8(dir / "s");
  {
    io::StoreWriter w(store, all_parts(store), small_policy());
    for (std::int64_t s = 0; s < store.size(); ++s)
      if (store.state(s).kind == StateKind::pending) {
        EXPECT_TRUE(w.put(s, states(s, store.length(s))));
      }
    w.close();
  }
  store.refresh();
  EXPECT_EQ(store.counts().done, 20);
  io::SampleData d;
  for (std::int64_t s = 0; s < store.size(); ++s) {
    if (store.state(s).kind != StateKind::done) continue;
    store.read(s, d);
    const auto expected = states(s, store.length(s));
    EXPECT_EQ(d.input_ids, expected.input_ids);
    EXPECT_EQ(d.loss_mask, expected.loss_mask);
    expect_close(d.aux, expected.aux, hidden);
    expect_close(d.last, expected.last, hidden);
  }
  io::VerifyOptions full;
  full.full = true;
  EXPECT_EQ(io::verify_store(dir / "s", full).code(), base::ExitCode::done);
}

TEST(Fp8Store, ScalesSuitTheirRows) {
  const TempDir dir;
  auto store = create_fp8(dir / "s");
  auto d = make_sample(0, store.length(0));
  ASSERT_EQ(store.length(0), 1);
  std::fill(d.aux.begin(), d.aux.end(), std::uint16_t{0});
  d.aux[hidden] = base::float_to_bf16(-896.0F);                         // second state: scale 2, code of -448
  d.aux[hidden + 1] = base::float_to_bf16(2.0F);                        // code of 1
  d.aux[2 * hidden] = 0x0001;                                           // third: the smallest bf16 there is
  std::fill(d.last.begin(), d.last.end(), base::float_to_bf16(3e38F));  // near the largest
  {
    io::StoreWriter w(store, std::vector<std::int64_t>{0}, small_policy());
    EXPECT_TRUE(w.put(0, std::move(d)));
    w.close();
  }
  const auto file = io::ContiguousFile::open(dir / "s" / "parts" / "part-00000.h5");
  std::array<float, 4> scales{};
  file.read("aux_scale", 0, 3, scales.data());
  file.read("last_scale", 0, 1, &scales[3]);
  EXPECT_EQ(scales[0], 1.0F) << "a row of zeros";
  EXPECT_EQ(scales[1], 2.0F);
  EXPECT_EQ(scales[2], std::numeric_limits<float>::min()) << "never subnormal";
  EXPECT_EQ(scales[3], base::bf16_to_float(base::float_to_bf16(3e38F)) / 448.0F);
  std::array<std::uint8_t, 3 * hidden> codes{};
  file.read("aux", 0, 3 * hidden, codes.data());
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[hidden], 0xfe);
  EXPECT_EQ(codes[hidden + 1], 0x38);
  store.refresh();
  io::SampleData out;
  store.read(0, out);
  EXPECT_EQ(base::bf16_to_float(out.aux[hidden]), -896.0F);
  EXPECT_EQ(out.last.front(), base::float_to_bf16(3e38F));
}

TEST(Fp8Store, NonFiniteFailsTheSample) {
  const TempDir dir;
  auto store = create_fp8(dir / "s");
  io::StoreWriter w(store, std::vector<std::int64_t>{0}, small_policy());
  auto d = make_sample(1, store.length(1));
  d.last[3] = 0x7f80;  // infinity
  EXPECT_FALSE(w.put(1, std::move(d)));
  w.close();
  store.refresh();
  EXPECT_EQ(store.state(1).reason, io::FailReason::nonfinite);
}

TEST(Fp8Store, VerifyNamesWhatCannotBe) {
  const TempDir dir;
  auto store = create_fp8(dir / "s");
  write_parts(store, {0}, small_policy());
  const auto path = dir / "s" / "parts" / "part-00000.h5";
  const auto offset = [&](const char* name) { return io::ContiguousFile::open(path).dataset(name).offset; };
  io::VerifyOptions full;
  full.full = true;
  const auto damage = [&](std::int64_t at, const std::string& bytes, const std::string& text) {
    const auto before = slurp(path);
    std::fstream f(path, std::ios::binary | std::ios::in | std::ios::out);
    f.seekp(at);
    f.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    f.close();
    std::string found;
    for (const auto& finding : io::verify_store(dir / "s", full).findings) found += finding.text + "\n";
    EXPECT_TRUE(contains(found, text)) << found;
    EXPECT_TRUE(contains(found, "checksum")) << found;
    std::ofstream(path, std::ios::binary) << before;
  };
  damage(offset("last"), "\x7f", "code of NaN");
  damage(offset("aux_scale"), std::string(4, '\0'), "a scale is 0");
  damage(offset("last_scale"), std::string("\0\0\x80\x7f", 4), "a scale is inf");
  EXPECT_EQ(io::verify_store(dir / "s", full).code(), base::ExitCode::done) << "restored";
}

/// check_store.py shares no code with this program.
TEST(Fp8Store, AnIndependentReaderAgrees) {
  const auto python = h5py_python();
  if (python.empty()) GTEST_SKIP() << "no python has h5py and xxhash";
  const TempDir dir;
  const auto store = create_fp8(dir / "s");
  write_parts(store, all_parts(store), small_policy());
  const auto command = python + " " AERIE_IO_TEST_DIR "/check_store.py " + (dir / "s").string() + " > " + (dir / "out").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << slurp(dir / "out");
  EXPECT_TRUE(contains(slurp(dir / "out"), "20 done, 3 failed, 0 pending; 0 differences"));
}

TEST(Fp8Store, IsAnotherStoreThanOneWithBf16) {
  const TempDir dir;
  create_fp8(dir / "s");
  const auto text =
      error_of<base::RefusedError>([&] { Store::create(dir / "s", small_identity(), small_plan(), small_part_bytes); });
  EXPECT_TRUE(contains(text, "logical_dtype: store float8_e4m3fn, expected bfloat16")) << text;
}

}  // namespace
}  // namespace aerie::test
