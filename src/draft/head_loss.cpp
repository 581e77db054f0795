// SPDX-License-Identifier: Apache-2.0
#include "head_loss.hpp"

#include "primitives.hpp"

#include <algorithm>

#include <ATen/ATen.h>

namespace aerie::draft {

HeadLossOutput head_loss(const HeadLossInput& in, const Teacher& teacher, const at::Tensor& head_grad) {
  const auto compute = in.y.scalar_type();
  const auto op = op_type(compute);
  const auto r = in.y.size(0);
  const bool train = head_grad.defined();
  HeadLossOutput out;
  out.draft_id = at::empty({r}, in.y.options().dtype(at::kLong));
  out.overlap = at::empty({r}, in.y.options().dtype(op));
  if (train) out.dy = at::empty_like(in.y);
  // Row losses are kept and summed once in fp64, so that the sum does not depend on the chunk size.
  auto row_loss = at::empty({r}, in.y.options().dtype(at::kDouble));

  for (std::int64_t a = 0; a < r; a += in.chunk_slots) {
    const auto n = std::min(in.chunk_slots, r - a);
    const auto y = in.y.narrow(0, a, n);
    const auto rows = in.teacher_row.narrow(0, a, n);
    auto z = at::mm(y, in.head.t()).to(op);
    const auto p = teacher.p.index_select(0, rows).to(op);
    out.draft_id.narrow(0, a, n).copy_(in.draft_ids.index_select(0, z.argmax(1)));
    const auto lse = at::logsumexp(z, 1);
    const auto share = p.sum(1);  // 1 up to the rounding that p is stored with
    auto loss = lse * share - (p * z).sum(1);
    auto weight = at::full({n}, in.coefficient, z.options());
    if (in.mask_oov) {
      const auto keep = teacher.in_vocab.index_select(0, rows);
      loss = at::where(keep, loss, at::zeros_like(loss));
      weight = at::where(keep, weight, at::zeros_like(weight));
    }
    row_loss.narrow(0, a, n).copy_(loss);
    auto q = z.sub_(lse.unsqueeze(1)).exp_();
    out.overlap.narrow(0, a, n).copy_(at::minimum(p * teacher.mass.index_select(0, rows).unsqueeze(1), q).sum(1));
    if (!train) continue;
    const auto dz = q.mul_(share.unsqueeze(1)).sub_(p).mul_(weight.unsqueeze(1)).to(compute);
    add_weight_grad(head_grad, dz, y);
    out.dy.narrow(0, a, n).copy_(at::mm(dz, in.head));
  }
  out.loss = row_loss.sum().item<double>();
  return out;
}

}  // namespace aerie::draft
