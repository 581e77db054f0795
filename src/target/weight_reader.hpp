// SPDX-License-Identifier: Apache-2.0
// Tensors of a model folder as compute tensors: shape checked against the configuration, BF16/F16/F32 converted to the compute
// dtype, parts that one GEMM computes laid side by side.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <aerie/interchange/model_dir.hpp>

#include "row_ops.hpp"

namespace aerie::target {

class WeightReader {
 public:
  enum class Mode { read, check_only };  // check_only: everything is checked, nothing read, undefined tensors returned
  WeightReader(const interchange::ModelDirectory& dir, c10::Device device, c10::ScalarType dtype, Mode mode)
      : dir_(dir), device_(device), dtype_(dtype), mode_(mode) {}

  struct Part {
    std::string name;
    std::int64_t rows;
  };
  /// [sum of rows, columns], the parts one below the other. Throws DataError (missing, wrong shape, unknown dtype).
  at::Tensor matrix(const std::vector<Part>& parts, std::int64_t columns) const;
  /// [sum of rows].
  at::Tensor vector(const std::vector<Part>& parts) const;
  /// fp32 holding values of the compute dtype.
  NormWeight norm(const std::string& name, std::int64_t n, double eps) const;

 private:
  at::Tensor stacked(const std::vector<Part>& parts, std::vector<std::int64_t> row_shape) const;
  void check(const std::string& name, const std::vector<std::int64_t>& shape) const;
  const interchange::ModelDirectory& dir_;
  c10::Device device_;
  c10::ScalarType dtype_;
  Mode mode_;
};

}  // namespace aerie::target
