// SPDX-License-Identifier: Apache-2.0
// SHA-256 against FIPS 180 examples, XXH3 against the values of xxHash's own sanity check (its buffer, its lengths).
#include <aerie/base/hash.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>

namespace base = aerie::base;

namespace {
/// The buffer that xxHash's sanity check hashes prefixes of.
std::vector<std::byte> sanity_buffer(std::size_t n) {
  std::vector<std::byte> out(n);
  std::uint64_t generator = 2654435761U;
  for (auto& b : out) {
    b = static_cast<std::byte>(generator >> 56);
    generator *= 11400714785074694797ULL;
  }
  return out;
}
struct Known {
  std::size_t bytes;
  std::uint64_t hash64;
  const char* hash128;
};
constexpr Known known[] = {
    {0, 0x2D06800538D394C2, "99aa06d3014798d86001c324468d497f"},
    {1, 0xC44BDFF4074EECDB, "a6cd5e9392000f6ac44bdff4074eecdb"},
    {6, 0x27B56A84CD2D7325, "082afe0b8162d12a3e7039bdda43cfc6"},
    {12, 0xA713DAF0DFBB77E7, "6e3efd8fc7802b18061a192713f69ad9"},
    {24, 0xA3FE70BF9D3510EB, "0ce966e4678d37611e7044d28b1b901d"},
    {48, 0x397DA259ECBA1F11, "a002ac4e5478227ef942219aed80f67b"},
    {80, 0xBCDEFBBB2C47C90A, "fdf2cefde9eaac8a454ae6bf7a8a532d"},
    {195, 0xCD94217EE362EC3A, "7729543a26b207ee3fb593c086a66075"},
    {403, 0xCDEB804D65C6DEA4, "1b6de21e332dd73dcdeb804d65c6dea4"},
    {512, 0x617E49599013CB6B, "18d2d110dcc9bca1617e49599013cb6b"},
    {2048, 0xDD59E2C3A5F038E0, "f736557fd47073a5dd59e2c3a5f038e0"},
    {2240, 0x6E73A90539CF2948, "ccb134fbfa7ce49d6e73a90539cf2948"},
};
}  // namespace

TEST(Hash, Xxh3PublishedValues) {
  const auto buffer = sanity_buffer(2240);
  for (const auto& k : known) {
    const auto bytes = std::span(buffer).first(k.bytes);
    EXPECT_EQ(base::xxh3_64(bytes), k.hash64) << k.bytes;
    EXPECT_EQ(base::xxh3_128_tagged(bytes), std::string("xxh3-128:") + k.hash128) << k.bytes;
  }
}

TEST(Hash, Xxh3StreamEqualsWhole) {
  const auto buffer = sanity_buffer(2240);
  for (const auto& k : known)
    for (const std::size_t piece : {1UL, 7UL, 64UL, 1000UL}) {
      base::Xxh3 hash;
      for (std::size_t at = 0; at < k.bytes; at += piece)
        hash.update(std::span(buffer).subspan(at, std::min(piece, k.bytes - at)));
      EXPECT_EQ(hash.digest64(), k.hash64) << k.bytes << " in pieces of " << piece;
      EXPECT_EQ(hash.digest128(), std::string("xxh3-128:") + k.hash128) << k.bytes << " in pieces of " << piece;
    }
}

TEST(Hash, Sha256PublishedValues) {
  EXPECT_EQ(base::sha256_tagged(""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(base::sha256_tagged("abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(base::sha256_tagged("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  base::Sha256 million;
  for (int i = 0; i < 1000; ++i) million.update(std::string(1000, 'a'));
  EXPECT_EQ(million.finish_tagged(), "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_THROW(million.finish(), base::Bug);
}

TEST(Hash, Hex) {
  const std::byte bytes[] = {std::byte{0}, std::byte{0x0f}, std::byte{0xff}};
  EXPECT_EQ(base::to_hex(bytes), "000fff");
}
