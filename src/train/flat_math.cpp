// SPDX-License-Identifier: Apache-2.0
#include "flat_math.hpp"

#include <cmath>
#include <span>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>
#include <aerie/train/fixed_point.hpp>

#ifdef AERIE_CUDA
#include <c10/cuda/CUDAStream.h>

#include "kernels/optimizer.hpp"
#endif

namespace aerie::train::flat {
namespace {

template <class T>
std::span<T> host(const at::Tensor& t) {
  return {t.mutable_data_ptr<T>(), static_cast<std::size_t>(t.numel())};
}

#ifdef AERIE_CUDA
void* stream_of(const at::Tensor& t) { return c10::cuda::getCurrentCUDAStream(t.device().index()).stream(); }
void check_launch(const char* what) {
  if (const char* error = cuda::launch_error()) throw base::PeerError(std::string("CUDA ") + what + ": " + error);
}
#else
[[noreturn]] void no_device() { throw base::Bug("a device tensor in a build without CUDA"); }
#endif

}  // namespace

std::int64_t add_fixed_point(const at::Tensor& values, const at::Tensor& sum, std::int64_t packs_per_step) {
  base::expect(values.numel() <= sum.numel(), "one accumulator per value");
  if (values.is_cpu())
    return train::add_fixed_point(host<float>(values), host<std::int64_t>(sum).first(static_cast<std::size_t>(values.numel())),
                                  packs_per_step);
#ifdef AERIE_CUDA
  constexpr auto none = std::int64_t{1} << 62;
  const auto bad = at::full({1}, none, sum.options());
  cuda::add_fixed_point(values.const_data_ptr<float>(), sum.mutable_data_ptr<std::int64_t>(), values.numel(),
                        static_cast<float>(fixed_point_range / static_cast<double>(packs_per_step)),
                        bad.mutable_data_ptr<std::int64_t>(), stream_of(values));
  check_launch("add to the gradient sum");
  const auto first = bad.item<std::int64_t>();
  return first == none ? -1 : first;
#else
  no_device();
#endif
}

void from_fixed_point(const at::Tensor& sum, const at::Tensor& out) {
  base::expect(sum.numel() == out.numel(), "one value per accumulator");
  if (sum.is_cpu()) return train::from_fixed_point(host<std::int64_t>(sum), host<float>(out));
#ifdef AERIE_CUDA
  cuda::from_fixed_point(sum.const_data_ptr<std::int64_t>(), out.mutable_data_ptr<float>(), sum.numel(), stream_of(sum));
  check_launch("read the gradient sum");
#else
  no_device();
#endif
}

std::vector<double> block_sums(const at::Tensor& values) {
  const auto blocks = values.numel() / block_elements;
  base::expect(blocks * block_elements == values.numel(), "the vector is whole blocks");
  std::vector<double> out(static_cast<std::size_t>(blocks));
  if (values.is_cpu()) {
    for (std::size_t b = 0; b < out.size(); ++b)
      out[b] = sum_of_squares(host<float>(values).subspan(b * block_elements, block_elements));
    return out;
  }
#ifdef AERIE_CUDA
  const auto sums = at::empty({blocks}, values.options().dtype(at::kDouble));
  cuda::block_sums(values.const_data_ptr<float>(), blocks, block_elements, sums.mutable_data_ptr<double>(), stream_of(values));
  check_launch("sum squares");
  const auto on_host = sums.cpu();
  std::copy_n(on_host.const_data_ptr<double>(), blocks, out.begin());
  return out;
#else
  no_device();
#endif
}

void adamw(const AdamWOptions& options, const at::Tensor& grad, const at::Tensor& masters, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq) {
  if (grad.is_cpu())
    return adamw_step(options, host<float>(grad), host<float>(masters), host<float>(exp_avg), host<float>(exp_avg_sq));
#ifdef AERIE_CUDA
  const auto f = adamw_factors(options);
  cuda::adamw({f.b1, f.b2, f.c1, f.c2, f.step_size, f.inverse_root, f.eps, f.scale, f.decay}, grad.const_data_ptr<float>(),
              masters.mutable_data_ptr<float>(), exp_avg.mutable_data_ptr<float>(), exp_avg_sq.mutable_data_ptr<float>(),
              grad.numel(), stream_of(grad));
  check_launch("AdamW");
#else
  no_device();
#endif
}

}  // namespace aerie::train::flat
