// SPDX-License-Identifier: Apache-2.0
#include <aerie/draft/drafter.hpp>

#include <array>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>

namespace aerie::draft {
namespace {

c10::ScalarType torch_type(interchange::Dtype dtype) {
  switch (dtype) {
    case interchange::Dtype::bf16:
      return at::kBFloat16;
    case interchange::Dtype::f16:
      return at::kHalf;
    case interchange::Dtype::f32:
      return at::kFloat;
    case interchange::Dtype::f64:
      return at::kDouble;
    default:
      throw base::DataError(fmt::format("dtype {} is not a floating type that weights come in", interchange::dtype_name(dtype)),
                            "supported: BF16, F16, F32, F64");
  }
}

at::Tensor read_tensor(const interchange::ModelDirectory& dir, const std::string& name, std::vector<std::int64_t> shape,
                       c10::Device device, c10::ScalarType dtype) {
  const auto& info = dir.info(name);
  if (info.shape != shape)
    throw base::DataError(fmt::format("{}: tensor {} has shape [{}], expected [{}]", dir.path().string(), name,
                                      fmt::join(info.shape, ", "), fmt::join(shape, ", ")));
  auto t = at::empty(shape, torch_type(info.dtype));
  dir.read(name, {static_cast<std::byte*>(t.mutable_data_ptr()), t.nbytes()});
  return t.to(at::TensorOptions(device).dtype(dtype));
}

}  // namespace

std::int64_t parameter_count(const DrafterShape& shape) {
  std::int64_t n = 0;
  for (const auto& t : interchange::drafter_tensors(shape)) n += t.elements();
  return n;
}

DrafterWeights view_weights(const DrafterShape& shape, const at::Tensor& flat) {
  base::expect(flat.dim() == 1 && flat.size(0) == parameter_count(shape),
               "the flat vector holds exactly the drafter's parameters");
  DrafterWeights w;
  const std::array<at::Tensor*, 13> members{&w.fc,        &w.input_norm, &w.hidden_norm, &w.q,    &w.k,    &w.v,      &w.o,
                                            &w.post_norm, &w.gate,       &w.up,          &w.down, &w.norm, &w.lm_head};
  const auto tensors = interchange::drafter_tensors(shape);
  base::expect(tensors.size() == members.size(), "drafter_tensors lists the tensors of DrafterWeights");
  std::int64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    *members[i] = flat.narrow(0, at, tensors[i].elements()).view(tensors[i].shape);
    at += tensors[i].elements();
  }
  return w;
}

TargetHead load_target_head(const interchange::ModelDirectory& dir, const interchange::TargetConfig& config, c10::Device device,
                            c10::ScalarType dtype) {
  TargetHead head;
  head.embedding = read_tensor(dir, config.embed_tensor, {config.vocab_size, config.hidden_size}, device, dtype);
  head.lm_head = config.lm_head_tensor == config.embed_tensor
                     ? head.embedding
                     : read_tensor(dir, config.lm_head_tensor, {config.vocab_size, config.hidden_size}, device, dtype);
  head.final_norm = read_tensor(dir, config.final_norm_tensor, {config.hidden_size}, device, dtype);
  head.final_norm_eps = config.rms_norm_eps;
  return head;
}

DrafterShape default_shape(const interchange::TargetConfig& t) {
  DrafterShape s;
  s.target_hidden_size = s.hidden_size = t.hidden_size;
  s.intermediate_size = t.intermediate_size;
  s.num_heads = t.num_heads;
  s.num_kv_heads = t.num_kv_heads;
  s.head_dim = t.head_dim;
  s.vocab_size = t.vocab_size;
  s.max_position_embeddings = t.max_position_embeddings;
  s.rms_norm_eps = t.rms_norm_eps;
  s.rope = t.rope;
  return s;
}

}  // namespace aerie::draft
