// SPDX-License-Identifier: Apache-2.0
// Forward pass of a frozen target over whole samples, capturing hidden states. No KV cache, no decoding. Layers are the outer
// loop and come from a LayerSource, so that weights may be resident or streamed one layer at a time.
//
// Row invariance: a sample's states depend on sample, weights, device kind and library versions alone. Every dense GEMM runs at
// one fixed row count (`gemm_rows`, last block zero-padded); attention runs per sample at a size that its own length determines.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>

namespace aerie::target {

struct TargetOptions {
  c10::Device device{c10::DeviceType::CPU};
  c10::ScalarType dtype = c10::ScalarType::Float;  // compute dtype
  std::int64_t gemm_rows = 256;
  std::array<std::int32_t, 3> aux_layers{};  // input-of-layer; N = output of the last layer before the final norm
  bool hf_numerics = false;                  // transformers' rounding points, for parity tests
  bool streamed = false;                     // read layers from disk as they are needed instead of keeping them
};

/// States of one sample on the compute device, in compute dtype.
struct SampleStates {
  at::Tensor aux;   // [T, 3, H], in the order of aux_layers
  at::Tensor last;  // [T, H], after the final norm
};

class TargetModel {
 public:
  /// Reads the weights. Throws MissingInputError, DataError (missing tensor, wrong shape, unsupported model).
  static TargetModel load(const interchange::ModelDirectory& dir, const TargetOptions& options);
  TargetModel(TargetModel&&) noexcept;
  TargetModel& operator=(TargetModel&&) noexcept;
  ~TargetModel();

  const interchange::TargetConfig& config() const;
  const TargetOptions& options() const;

  /// Runs the samples of one batch (each `ids[i]` one whole sample, at least one token) and returns their states in order. `poll`
  /// is called between layers. Throws DataError for an id outside the vocabulary.
  std::vector<SampleStates> forward(std::span<const std::span<const std::int32_t>> ids,
                                    const std::function<void()>& poll = {}) const;

  /// Every captured residual 0..N of one sample, [N+1, T, H], and the final state [T, H]; for parity tests.
  struct AllStates {
    at::Tensor residuals, last;
  };
  AllStates forward_all(std::span<const std::int32_t> ids) const;

 private:
  struct Impl;
  explicit TargetModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::target
