// SPDX-License-Identifier: Apache-2.0
#include <aerie/train/store_source.hpp>

#include <cstring>

#include <ATen/ATen.h>

namespace aerie::train {

draft::PackBatch StoreSource::load(const dataset::Pack& pack) {
  draft::PackBatch batch;
  const auto H = store_.identity().hidden_size;
  auto aux = at::empty({pack.n_tokens, 3 * H}, at::kBFloat16);
  auto last = at::empty({pack.n_tokens, H}, at::kBFloat16);
  io::SampleData sample;
  std::int64_t row = 0;
  for (const auto s : pack.samples) {
    store_.read(s, sample);
    const auto T = static_cast<std::int64_t>(sample.input_ids.size());
    std::memcpy(aux.narrow(0, row, T).mutable_data_ptr(), sample.aux.data(), sample.aux.size() * 2);
    std::memcpy(last.narrow(0, row, T).mutable_data_ptr(), sample.last.data(), sample.last.size() * 2);
    batch.lengths.push_back(T);
    batch.ids.insert(batch.ids.end(), sample.input_ids.begin(), sample.input_ids.end());
    batch.mask.insert(batch.mask.end(), sample.loss_mask.begin(), sample.loss_mask.end());
    row += T;
  }
  base::expect(row == pack.n_tokens, "a pack holds the tokens of its samples");
  batch.aux = aux.to(at::TensorOptions(device_).dtype(dtype_));
  batch.last = last.to(at::TensorOptions(device_).dtype(dtype_));
  if (store_.identity().last_hidden_norm == "pre_final_norm") {
    const auto x = batch.last.to(at::kFloat);
    const auto inverse = at::rsqrt(x.square().mean(-1, true).add_(store_.identity().final_norm_eps));
    batch.last = (x * inverse * head_.final_norm.to(at::kFloat)).to(dtype_);
  }
  return batch;
}

}  // namespace aerie::train
