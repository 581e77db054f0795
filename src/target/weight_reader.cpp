// SPDX-License-Identifier: Apache-2.0
// Reads one stored tensor at a time into a buffer of its own dtype and converts from there, so that loading holds no more than
// one tensor beside the model.
#include "weight_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>

namespace aerie::target {
namespace {

at::ScalarType stored_type(interchange::Dtype dtype, const std::string& name, const std::filesystem::path& dir) {
  switch (dtype) {
    case interchange::Dtype::f32:
      return at::kFloat;
    case interchange::Dtype::bf16:
      return at::kBFloat16;
    case interchange::Dtype::f16:
      return at::kHalf;
    default:
      throw base::DataError(fmt::format("{}: tensor {} is stored as {}", dir.string(), name, interchange::dtype_name(dtype)),
                            "weights must be BF16, F16 or F32; dequantise the checkpoint first");
  }
}

}  // namespace

void WeightReader::check(const std::string& name, const std::vector<std::int64_t>& shape) const {
  if (!dir_.contains(name)) {
    throw base::DataError(fmt::format("{}: tensor {} is missing", dir_.path().string(), name),
                          "the folder is incomplete, or its config.json belongs to another model");
  }
  const auto& info = dir_.info(name);
  if (info.shape != shape) {
    throw base::DataError(fmt::format("{}: tensor {} has shape [{}], config.json implies [{}]", dir_.path().string(), name,
                                      fmt::join(info.shape, ", "), fmt::join(shape, ", ")),
                          "config.json and the weights belong to different models");
  }
  stored_type(info.dtype, name, dir_.path());
}

at::Tensor WeightReader::stacked(const std::vector<Part>& parts, std::vector<std::int64_t> row_shape) const {
  std::int64_t rows = 0;
  row_shape.insert(row_shape.begin(), 0);
  for (const auto& part : parts) {
    row_shape[0] = part.rows;
    check(part.name, row_shape);
    rows += part.rows;
  }
  if (mode_ == Mode::check_only) return {};
  row_shape[0] = rows;
  at::Tensor all = at::empty(row_shape, at::TensorOptions().dtype(dtype_));
  std::int64_t at_row = 0;
  for (const auto& part : parts) {
    row_shape[0] = part.rows;
    const auto& info = dir_.info(part.name);
    at::Tensor stored = at::empty(row_shape, at::TensorOptions().dtype(stored_type(info.dtype, part.name, dir_.path())));
    dir_.read(part.name, {static_cast<std::byte*>(stored.mutable_data_ptr()), static_cast<std::size_t>(info.bytes())});
    all.narrow(0, at_row, part.rows).copy_(stored);
    at_row += part.rows;
  }
  return all.to(device_);
}

at::Tensor WeightReader::matrix(const std::vector<Part>& parts, std::int64_t columns) const { return stacked(parts, {columns}); }

at::Tensor WeightReader::vector(const std::vector<Part>& parts) const { return stacked(parts, {}); }

NormWeight WeightReader::norm(const std::string& name, std::int64_t n, double eps) const {
  at::Tensor weight = stacked({{name, n}}, {});
  return {weight.defined() ? weight.to(at::kFloat) : weight, eps};
}

}  // namespace aerie::target
