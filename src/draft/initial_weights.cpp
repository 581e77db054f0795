// SPDX-License-Identifier: Apache-2.0
// Initial weights: a function of (shape, seed, the target's head) alone, made with counter-based numbers so that every rank makes
// the same.
#include <aerie/draft/drafter.hpp>

#include <cmath>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

namespace aerie::draft {
namespace {

void fill_normal(at::Tensor t, double std, std::uint64_t seed, std::uint64_t stream) {
  auto* out = t.mutable_data_ptr<float>();
  const auto n = t.numel();
  for (std::int64_t i = 0; i < n; ++i)
    out[i] =
        static_cast<float>(std * base::random_normal(seed, base::Purpose::weight_init, stream, static_cast<std::uint64_t>(i)));
}

}  // namespace

at::Tensor initial_weights(const DrafterShape& shape, std::uint64_t seed, const at::Tensor& target_head,
                           const interchange::VocabMap& vocab) {
  auto flat = at::zeros({parameter_count(shape)}, at::kFloat);
  auto w = view_weights(shape, flat);
  for (auto& norm : {w.input_norm, w.hidden_norm, w.post_norm}) norm.fill_(1);
  const double H = static_cast<double>(shape.hidden_size);
  std::uint64_t stream = 0;
  const auto matrix = [&](const at::Tensor& t, double std) { fill_normal(t, std, seed, stream++); };
  // fc starts as the uppermost captured layer plus a little of all three: the residual stream then has the target's own basis, in
  // which its head reads. Against a random fc this halves the steps to the same loss (docs/performance.md).
  const bool same_width = shape.target_hidden_size == shape.hidden_size;
  const double fc_std = 1.0 / std::sqrt(3.0 * static_cast<double>(shape.target_hidden_size));
  matrix(w.fc, same_width ? 0.1 * fc_std : fc_std);
  if (same_width) w.fc.narrow(1, 2 * shape.hidden_size, shape.hidden_size).add_(at::eye(shape.hidden_size));
  matrix(w.q, 1.0 / std::sqrt(2.0 * H));
  matrix(w.k, 1.0 / std::sqrt(2.0 * H));
  matrix(w.v, 1.0 / std::sqrt(2.0 * H));
  // The two matrices that write into the residual stream start small, so that the first step's output is near fc's.
  matrix(w.o, 0.5 / std::sqrt(static_cast<double>(shape.num_heads * shape.head_dim)));
  matrix(w.gate, 1.0 / std::sqrt(H));
  matrix(w.up, 1.0 / std::sqrt(H));
  matrix(w.down, 0.5 / std::sqrt(static_cast<double>(shape.intermediate_size)));
  if (target_head.defined() && target_head.size(1) == shape.hidden_size) {
    const auto ids = at::tensor(at::ArrayRef<std::int64_t>(vocab.d2t), at::kLong) + at::arange(vocab.draft_size(), at::kLong);
    w.lm_head.copy_(target_head.cpu().index_select(0, ids));
    w.norm.fill_(0.3F);  // a trained head on states it was not trained for is too sure of itself: start near the uniform loss
  } else {
    matrix(w.lm_head, 0.02);
    w.norm.fill_(1);
  }
  return flat;
}

}  // namespace aerie::draft
