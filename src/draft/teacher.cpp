// SPDX-License-Identifier: Apache-2.0
#include "teacher.hpp"

#include "primitives.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

namespace aerie::draft {

Teacher make_teacher(const at::Tensor& states, const at::Tensor& head, const at::Tensor& draft_ids, const at::Tensor& t2d,
                     std::int64_t chunk_slots, std::int64_t chunk_vocab) {
  const auto compute = states.scalar_type();
  const auto op = op_type(compute);
  const auto P = states.size(0), V = head.size(0), Vd = draft_ids.size(0);
  Teacher out;
  out.argmax = at::empty({P}, states.options().dtype(at::kLong));
  out.p = at::empty({P, Vd}, states.options());
  out.mass = at::empty({P}, states.options().dtype(op));

  // Draft ids ascend, so each vocabulary chunk owns a run of draft columns.
  const auto ids_host = draft_ids.cpu();
  const auto* ids = ids_host.const_data_ptr<std::int64_t>();
  const std::vector<std::int64_t> sorted(ids, ids + Vd);

  for (std::int64_t a = 0; a < P; a += chunk_slots) {
    const auto n = std::min(chunk_slots, P - a);
    const auto x = states.narrow(0, a, n);
    auto best = at::full({n}, -std::numeric_limits<double>::infinity(), states.options().dtype(op));
    auto best_id = at::zeros({n}, states.options().dtype(at::kLong));
    auto sum = at::zeros({n}, states.options().dtype(op));  // of exp(z - best)
    auto draft_logits = at::empty({n, Vd}, states.options().dtype(op));
    for (std::int64_t v = 0; v < V; v += chunk_vocab) {
      const auto m = std::min(chunk_vocab, V - v);
      const auto z = at::mm(x, head.narrow(0, v, m).t()).to(op);
      const auto [top, where] = z.max(1);
      const auto higher = top > best;  // strict: ties stay with the lower id
      const auto fresh = at::where(higher, top, best);
      sum = sum * at::exp(best - fresh) + at::exp(z - fresh.unsqueeze(1)).sum(1);
      best_id = at::where(higher, where + v, best_id);
      best = fresh;
      const auto d0 = std::lower_bound(sorted.begin(), sorted.end(), v) - sorted.begin();
      const auto d1 = std::lower_bound(sorted.begin(), sorted.end(), v + m) - sorted.begin();
      if (d1 > d0) draft_logits.narrow(1, d0, d1 - d0).copy_(z.index_select(1, draft_ids.narrow(0, d0, d1 - d0) - v));
    }
    const auto draft_lse = at::logsumexp(draft_logits, 1);
    out.p.narrow(0, a, n).copy_(at::exp(draft_logits.sub_(draft_lse.unsqueeze(1))));
    out.mass.narrow(0, a, n).copy_(at::exp(draft_lse - (best + at::log(sum))));
    out.argmax.narrow(0, a, n).copy_(best_id);
  }
  out.in_vocab = t2d.index_select(0, out.argmax);
  return out;
}

}  // namespace aerie::draft
