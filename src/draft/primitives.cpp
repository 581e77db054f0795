// SPDX-License-Identifier: Apache-2.0
#include "primitives.hpp"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

namespace aerie::draft {

c10::ScalarType op_type(c10::ScalarType compute) { return compute == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto op = op_type(x.scalar_type());
  const auto xf = x.to(op);
  const auto inverse = at::rsqrt(xf.square().mean(-1, true).add_(eps));
  return (xf * inverse).mul_(weight.to(op)).to(x.scalar_type());
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, double eps,
                             const at::Tensor& weight_grad) {
  const auto op = op_type(x.scalar_type());
  const auto xf = x.to(op), dyf = dy.to(op);
  const auto inverse = at::rsqrt(xf.square().mean(-1, true).add_(eps));
  const auto normed = xf * inverse;
  if (weight_grad.defined()) weight_grad.add_((dyf * normed).sum(0));
  const auto dn = dyf * weight.to(op);
  return (dn - normed * (dn * normed).mean(-1, true)).mul_(inverse);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const auto op = op_type(gate.scalar_type());
  return at::silu(gate.to(op)).mul_(up.to(op)).to(gate.scalar_type());
}

SwigluGrads swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
  const auto op = op_type(gate.scalar_type());
  const auto g = gate.to(op), dyf = dy.to(op);
  const auto s = at::sigmoid(g);
  const auto silu = g * s;
  // d silu = s + silu (1 - s)
  return {(dyf * up.to(op)).mul_(s + silu * (1 - s)).to(gate.scalar_type()), (dyf * silu).to(gate.scalar_type())};
}

RotaryTable rotary_table(const interchange::RopeConfig& rope, std::int64_t head_dim, std::int64_t max_position_embeddings,
                         std::int64_t positions, at::TensorOptions options) {
  const auto op = op_type(c10::typeMetaToScalarType(options.dtype()));
  const auto half = head_dim / 2;
  const auto table = interchange::rope_table(rope, head_dim, max_position_embeddings);
  at::Tensor frequency;
  if (op == at::kDouble && rope.type == "default") {
    // fp64 runs check the math: their angles carry no fp32 rounding.
    std::vector<double> f(static_cast<std::size_t>(half));
    for (std::int64_t i = 0; i < half; ++i)
      f[static_cast<std::size_t>(i)] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    frequency = at::tensor(f, at::kDouble);
  } else {
    frequency = at::tensor(table.inverse_frequency, at::kFloat).to(op);
  }
  const auto angle = at::outer(at::arange(positions, at::kLong).to(op), frequency);
  return {(angle.cos() * table.scale).to(options.device()), (angle.sin() * table.scale).to(options.device())};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions, bool inverse) {
  const auto op = op_type(x.scalar_type());
  const auto half = x.size(-1) / 2;
  const auto cos = table.cos.index_select(0, positions).unsqueeze(1);
  auto sin = table.sin.index_select(0, positions).unsqueeze(1);
  if (inverse) sin = -sin;
  const auto a = x.narrow(-1, 0, half).to(op), b = x.narrow(-1, half, half).to(op);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).to(x.scalar_type());
}

void add_weight_grad(const at::Tensor& grad, const at::Tensor& dy, const at::Tensor& x) {
  if (dy.scalar_type() == grad.scalar_type() && x.scalar_type() == grad.scalar_type())
    grad.addmm_(dy.t(), x);
  else if (grad.is_cuda())
    grad.add_(at::mm(dy.t(), x, grad.scalar_type()));  // inputs as they are, the sum in fp32
  else
    grad.addmm_(dy.t().to(grad.scalar_type()), x.to(grad.scalar_type()));
}

}  // namespace aerie::draft
