// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/philox.hpp>

#include <cmath>
#include <numbers>

namespace aerie::base {
namespace {
struct HighLow {
  std::uint32_t high, low;
};
HighLow multiply(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t p = static_cast<std::uint64_t>(a) * b;
  return {static_cast<std::uint32_t>(p >> 32), static_cast<std::uint32_t>(p)};
}
std::array<std::uint32_t, 4> block(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index) {
  // 128 counter bits: index 64, stream low 32, purpose with the stream's upper bits folded in; 64 key bits: seed.
  return philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), static_cast<std::uint32_t>(stream),
       static_cast<std::uint32_t>(purpose) ^ (static_cast<std::uint32_t>(stream >> 32) << 16)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}
double to_uniform(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>(((static_cast<std::uint64_t>(high) << 32) | low) >> 11) * 0x1.0p-53;
}
}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const auto a = multiply(0xD2511F53U, c[0]);
    const auto b = multiply(0xCD9E8D57U, c[2]);
    c = {b.high ^ c[1] ^ k[0], b.low, a.high ^ c[3] ^ k[1], a.low};
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  return c;
}

std::uint64_t random_u64(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index) {
  const auto b = block(seed, purpose, stream, index);
  return (static_cast<std::uint64_t>(b[0]) << 32) | b[1];
}
double random_uniform(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index) {
  const auto b = block(seed, purpose, stream, index);
  return to_uniform(b[0], b[1]);
}
double random_normal(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index) {
  const auto b = block(seed, purpose, stream, index);
  const double u = 1.0 - to_uniform(b[0], b[1]);  // in (0, 1]
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * to_uniform(b[2], b[3]));
}

}  // namespace aerie::base
