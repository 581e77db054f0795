// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/hash.hpp>

#include <aerie/base/error.hpp>

#include <utility>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

namespace aerie::base {

std::uint64_t xxh3_64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Xxh3::State {
  XXH3_state_t* state = XXH3_createState();
  ~State() { XXH3_freeState(state); }
};
Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  expect(state_->state != nullptr, "XXH3_createState returns a state");
  XXH3_128bits_reset(state_->state);  // the 64-bit digest of the same input is taken from the same state
}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
void Xxh3::update(std::span<const std::byte> bytes) { XXH3_128bits_update(state_->state, bytes.data(), bytes.size()); }
void Xxh3::update(std::string_view text) { update(std::as_bytes(std::span(text))); }
std::uint64_t Xxh3::digest64() const { return XXH3_64bits_digest(state_->state); }
std::string Xxh3::digest128() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->state);
  return fmt::format("xxh3-128:{:016x}{:016x}", h.high64, h.low64);
}

struct Sha256::State {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  bool finished = false;  // OpenSSL does not refuse a second final call, it returns another digest
  ~State() { EVP_MD_CTX_free(ctx); }
};
Sha256::Sha256() : state_(std::make_unique<State>()) {
  expect(state_->ctx != nullptr && EVP_DigestInit_ex(state_->ctx, EVP_sha256(), nullptr) == 1, "SHA-256 is available");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
void Sha256::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(state_->ctx, bytes.data(), bytes.size()); }
void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }
std::array<std::byte, 32> Sha256::finish() {
  std::array<std::byte, 32> out{};
  unsigned n = 0;
  expect(!std::exchange(state_->finished, true), "a SHA-256 is finished once");
  expect(EVP_DigestFinal_ex(state_->ctx, reinterpret_cast<unsigned char*>(out.data()), &n) == 1 && n == 32, "SHA-256 finishes");
  return out;
}
std::string Sha256::finish_tagged() {
  const auto digest = finish();
  return "sha256:" + to_hex(digest);
}

std::string xxh3_128_tagged(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("xxh3-128:{:016x}{:016x}", h.high64, h.low64);
}
std::string xxh3_128_tagged(std::string_view text) { return xxh3_128_tagged(std::as_bytes(std::span(text))); }
std::string sha256_tagged(std::string_view text) {
  Sha256 h;
  h.update(text);
  return h.finish_tagged();
}
std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (auto b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

}  // namespace aerie::base
