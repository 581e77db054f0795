// SPDX-License-Identifier: Apache-2.0
// A whole problem for draft::unroll: weights, target, draft vocabulary and documents. Read from tests/golden/draft/data, or made
// from a seed. Not here: expected values. Paths are relative to the project's folder, in which ctest starts the tests.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/base/json.hpp>
#include <aerie/draft/unroll.hpp>

namespace aerie::test {

/// tests/golden/draft/data/NAME
std::filesystem::path golden(const std::string& name);

/// One tensor of a safetensors file as `dtype` (default: as stored; I32 and U8 likewise).
at::Tensor read_tensor(const std::filesystem::path& file, const std::string& name,
                       c10::ScalarType dtype = c10::ScalarType::Undefined);

struct Problem {
  interchange::DrafterShape shape;
  at::Tensor flat;  // all weights, in the order of interchange::drafter_tensors
  draft::TargetHead target;
  interchange::VocabMap vocab;
  draft::PackBatch pack;  // all documents
  std::int64_t ttt_steps = 0;
};

/// `record`: the parsed P.json; weights and states in `dtype` (the files hold fp64).
Problem read_problem(const base::Json& record, c10::ScalarType dtype);

/// Random fp64 weights and states from `seed`; documents of the given masks. Ht 6, H 8, I 10, 2 heads on 1 kv head of 4, V 20,
/// Vd 7.
Problem random_problem(std::uint64_t seed, const std::vector<std::vector<std::uint8_t>>& masks, std::int64_t ttt_steps);

/// The documents with these indices as a pack of their own.
draft::PackBatch select(const draft::PackBatch& pack, const std::vector<std::size_t>& documents);

struct Run {
  draft::UnrollResult result;
  std::vector<std::string> names;  // of interchange::drafter_tensors
  std::vector<at::Tensor> grads;   // in that order, each with its tensor's shape
};
/// Forward and backward of `pack` with the problem's weights.
Run run(const Problem& problem, const draft::PackBatch& pack, const draft::UnrollOptions& options,
        const std::vector<double>& coefficients);
/// Forward only: the weighted loss with `flat` for weights.
double loss_of(const Problem& problem, const at::Tensor& flat, const draft::UnrollOptions& options,
               const std::vector<double>& coefficients);

/// max |a - b| / max |b|, in fp64; infinity when a holds a NaN.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace aerie::test
