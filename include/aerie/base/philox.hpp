// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC11). A value is a function of (seed, purpose, index), never of a generator's history: there is no state to save, and
// the rank count does not matter.
#pragma once
#include <array>
#include <cstdint>

namespace aerie::base {

/// The raw block function; tested against the published vectors.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// What a random value is for. New purposes get new numbers; numbers are never reused.
enum class Purpose : std::uint32_t { sample_order = 1, weight_init = 2, holdout = 3, test = 1000 };

/// 64 uniform bits for (seed, purpose, stream, index).
std::uint64_t random_u64(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index);
/// Uniform in [0, 1), 53 bits.
double random_uniform(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index);
/// Standard normal by Box-Muller, from two uniform values of one block.
double random_normal(std::uint64_t seed, Purpose purpose, std::uint64_t stream, std::uint64_t index);

}  // namespace aerie::base
