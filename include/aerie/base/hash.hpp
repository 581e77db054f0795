// SPDX-License-Identifier: Apache-2.0
// Checksums (XXH3) and digests (SHA-256), and their tagged text form: "xxh3-128:<32 hex digits>", "sha256:<64 hex digits>".
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace aerie::base {

/// XXH3-64 of one byte range, seed 0.
std::uint64_t xxh3_64(std::span<const std::byte> bytes);

/// Streaming XXH3, 64 and 128 bits. The digest of several updates equals that of the concatenation.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::uint64_t digest64() const;
  std::string digest128() const;  // tagged: "xxh3-128:..."

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Streaming SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::array<std::byte, 32> finish();  // once
  std::string finish_tagged();         // once; "sha256:..."

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string xxh3_128_tagged(std::span<const std::byte> bytes);
std::string xxh3_128_tagged(std::string_view text);
std::string sha256_tagged(std::string_view text);
std::string to_hex(std::span<const std::byte> bytes);  // lower case

/// The bytes of a span of trivially copyable values.
template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

}  // namespace aerie::base
