// SPDX-License-Identifier: Apache-2.0
// CPU: the flash kernel, called by name so that no dispatcher picks another. GPU: LibTorch's choice, made from shape and dtype.
#include "attention.hpp"

#include <cmath>

#include <ATen/ATen.h>

namespace aerie::target {

at::Tensor causal_attention(const Heads& heads) {
  const auto batch_of_one = [](const at::Tensor& t) { return t.transpose(0, 1).unsqueeze(0); };  // [1, heads, T, dim]
  const at::Tensor q = batch_of_one(heads.q), k = batch_of_one(heads.k), v = batch_of_one(heads.v);
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads.q.size(-1)));
  at::Tensor out;
  if (q.is_cpu()) {
    out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0.0, /*is_causal=*/true, {}, scale));
  } else {
    out = at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0.0, /*is_causal=*/true, scale, /*enable_gqa=*/true);
  }
  return out.squeeze(0).transpose(0, 1);
}

}  // namespace aerie::target
