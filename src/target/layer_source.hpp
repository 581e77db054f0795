// SPDX-License-Identifier: Apache-2.0
// Where the weights of a layer come from: kept for the life of the model, or read from disk each time the forward pass
// reaches the layer and dropped after it. The values are the same, and so are the results.
#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>

#include "linear.hpp"
#include "row_ops.hpp"

namespace aerie::target {

/// One decoder layer. Projections that read the same rows are fused: [q | k | v] and [gate | up].
struct LayerWeights {
  NormWeight input_norm, post_norm;
  NormWeight q_norm, k_norm;  // undefined weights where the model has none
  RowBlockedLinear qkv, out, gate_up, down;
};

class LayerSource {
 public:
  virtual ~LayerSource() = default;
  /// Weights of layer `index`, valid as long as the pointer is held.
  virtual std::shared_ptr<const LayerWeights> layer(std::int64_t index) const = 0;
  /// Rows of the embedding, [n, hidden], for `ids` [n] int64 on the CPU; on the compute device.
  virtual at::Tensor embed(const at::Tensor& ids) const = 0;
  virtual const NormWeight& final_norm() const = 0;
};

/// Checks that every tensor is there with the right shape; then reads them (or, streamed, only the final norm).
/// Throws DataError.
std::unique_ptr<LayerSource> make_layer_source(const interchange::ModelDirectory& dir, const interchange::TargetConfig& config,
                                               c10::Device device, c10::ScalarType dtype, bool streamed);

}  // namespace aerie::target
