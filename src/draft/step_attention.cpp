// SPDX-License-Identifier: Apache-2.0
#include "step_attention.hpp"

#include "primitives.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ATen.h>

namespace aerie::draft {
namespace {

constexpr std::int64_t query_block = 256;

/// One block of queries of one document: rows [row, row + n) of the active set against full rows [key, key + keys).
struct Block {
  std::int64_t row, n, key, keys;
  at::Tensor visible;  // bool [n, keys]
};

/// Calls `f` for every block, in document order. Keys end at the block's last query: later ones are masked anyway.
void for_each_block(const PackPlan& plan, const std::function<void(const Block&)>& f) {
  for (const auto& doc : plan.documents)
    for (std::int64_t a = 0; a < doc.active_count; a += query_block) {
      const auto n = std::min(query_block, doc.active_count - a);
      const auto row = doc.active_begin + a;
      const auto keys = doc.active_position[static_cast<std::size_t>(a + n - 1)] + 1;
      const auto position = plan.active_positions.narrow(0, row, n).unsqueeze(1);
      const auto key_position = plan.full_positions.narrow(0, doc.full_begin, keys).unsqueeze(0);
      f({row, n, doc.full_begin, keys, key_position <= position});
    }
}

/// [n, heads, hd] -> [kv, group * n, hd]: queries that share a key head stand together.
at::Tensor to_groups(const at::Tensor& x, const AttentionShape& s) {
  const auto n = x.size(0), group = s.heads / s.kv_heads;
  return x.view({n, s.kv_heads, group, s.head_dim}).permute({1, 2, 0, 3}).reshape({s.kv_heads, group * n, s.head_dim});
}
/// The way back.
at::Tensor from_groups(const at::Tensor& x, const AttentionShape& s, std::int64_t n) {
  const auto group = s.heads / s.kv_heads;
  return x.view({s.kv_heads, group, n, s.head_dim}).permute({2, 0, 1, 3}).reshape({n, s.heads, s.head_dim});
}
/// [n, heads] -> [kv, group * n, 1]
at::Tensor rows_to_groups(const at::Tensor& x, const AttentionShape& s) {
  const auto n = x.size(0), group = s.heads / s.kv_heads;
  return x.view({n, s.kv_heads, group}).permute({1, 2, 0}).reshape({s.kv_heads, group * n, 1});
}
/// Per-head view of a per-slot key or value: [n, kv, hd] -> [n, kv, 1, hd], to meet queries [n, kv, group, hd].
at::Tensor per_slot(const at::Tensor& x) { return x.unsqueeze(2); }

at::Tensor scores(const Block& b, const AttentionShape& s, const at::Tensor& qg, const at::Tensor& keys, double scale) {
  const auto group = s.heads / s.kv_heads;
  auto z = at::bmm(qg, keys.transpose(1, 2)).to(op_type(qg.scalar_type())).mul_(scale);
  z.view({s.kv_heads, group, b.n, b.keys}).masked_fill_(b.visible.logical_not(), -std::numeric_limits<double>::infinity());
  return z;
}

at::Tensor block_of(const at::Tensor& x, std::int64_t first, std::int64_t count) { return x.narrow(0, first, count); }

}  // namespace

AttentionResult step_attention(const AttentionShape& s, const PackPlan& plan, const at::Tensor& q, const at::Tensor& k0,
                               const at::Tensor& v0, const std::vector<at::Tensor>& own_k, const std::vector<at::Tensor>& own_v) {
  const auto op = op_type(q.scalar_type());
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  const auto n = q.size(0), group = s.heads / s.kv_heads;
  auto causal = at::empty({n, s.heads, s.head_dim}, q.options().dtype(op));
  auto lse = at::empty({n, s.heads}, q.options().dtype(op));
  for_each_block(plan, [&](const Block& b) {
    const auto qg = to_groups(block_of(q, b.row, b.n), s);
    const auto z = scores(b, s, qg, block_of(k0, b.key, b.keys).transpose(0, 1), scale);
    const auto l = at::logsumexp(z, -1, true);
    const auto p = (z - l).exp_();
    const auto o = at::bmm(p.to(q.scalar_type()), block_of(v0, b.key, b.keys).transpose(0, 1)).to(op);
    block_of(causal, b.row, b.n).copy_(from_groups(o, s, b.n));
    block_of(lse, b.row, b.n).copy_(l.view({s.kv_heads, group, b.n}).permute({2, 0, 1}).reshape({b.n, s.heads}));
  });
  if (own_k.empty()) return {causal.to(q.scalar_type()), lse};

  // Merge: L = log(e^L0 + sum_i e^d_i); O = e^(L0-L) O0 + sum_i e^(d_i-L) V_i.
  const auto qv = q.view({n, s.kv_heads, group, s.head_dim}).to(op);
  std::vector<at::Tensor> d{lse.view({n, s.kv_heads, group})};
  for (const auto& k : own_k) d.push_back((qv * per_slot(k.to(op))).sum(-1).mul_(scale));
  const auto stacked = at::stack(d);  // [1 + k, n, kv, group]
  const auto merged = at::logsumexp(stacked, 0);
  const auto weight = (stacked - merged.unsqueeze(0)).exp_();
  auto out = causal.view({n, s.kv_heads, group, s.head_dim}) * weight[0].unsqueeze(-1);
  for (std::size_t i = 0; i < own_v.size(); ++i)
    out.add_(weight[static_cast<std::int64_t>(i) + 1].unsqueeze(-1) * per_slot(own_v[i].to(op)));
  return {out.view({n, s.heads, s.head_dim}).to(q.scalar_type()), merged.reshape({n, s.heads})};
}

at::Tensor step_attention_backward(const AttentionShape& s, const PackPlan& plan, const at::Tensor& d_out,
                                   const AttentionResult& forward, const at::Tensor& q, const at::Tensor& k0,
                                   const at::Tensor& v0, const std::vector<at::Tensor>& own_k,
                                   const std::vector<at::Tensor>& own_v, const at::Tensor& dk0, const at::Tensor& dv0,
                                   const std::vector<at::Tensor>& d_own_k, const std::vector<at::Tensor>& d_own_v) {
  const auto op = op_type(q.scalar_type());
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  const auto n = q.size(0), group = s.heads / s.kv_heads;
  const auto compute = q.scalar_type();
  const auto g = d_out.to(compute);
  const auto delta = (d_out.to(op) * forward.out.to(op)).sum(-1);  // [n, heads]
  auto dq = at::empty({n, s.heads, s.head_dim}, q.options().dtype(op));

  for_each_block(plan, [&](const Block& b) {
    const auto qg = to_groups(block_of(q, b.row, b.n), s), gg = to_groups(block_of(g, b.row, b.n), s);
    const auto keys = block_of(k0, b.key, b.keys).transpose(0, 1), values = block_of(v0, b.key, b.keys).transpose(0, 1);
    const auto z = scores(b, s, qg, keys, scale);
    const auto p = (z - rows_to_groups(block_of(forward.lse, b.row, b.n), s)).exp_();
    const auto dp = at::bmm(gg, values.transpose(1, 2)).to(op);
    const auto ds = (p * (dp - rows_to_groups(block_of(delta, b.row, b.n), s))).mul_(scale).to(compute);
    block_of(dv0, b.key, b.keys).add_(at::bmm(p.to(compute).transpose(1, 2), gg).transpose(0, 1));
    block_of(dk0, b.key, b.keys).add_(at::bmm(ds.transpose(1, 2), qg).transpose(0, 1));
    block_of(dq, b.row, b.n).copy_(from_groups(at::bmm(ds, keys).to(op), s, b.n));
  });

  const auto qv = q.view({n, s.kv_heads, group, s.head_dim}).to(op), gv = d_out.view({n, s.kv_heads, group, s.head_dim}).to(op);
  const auto lse = forward.lse.view({n, s.kv_heads, group}), dl = delta.view({n, s.kv_heads, group});
  auto dqv = dq.view({n, s.kv_heads, group, s.head_dim});
  for (std::size_t i = 0; i < own_k.size(); ++i) {
    const auto k = per_slot(own_k[i].to(op)), v = per_slot(own_v[i].to(op));
    const auto p = ((qv * k).sum(-1).mul_(scale) - lse).exp_();
    const auto dd = (p * ((gv * v).sum(-1) - dl)).mul_(scale).unsqueeze(-1);
    d_own_v[i].add_((p.unsqueeze(-1) * gv).sum(2));
    d_own_k[i].add_((dd * qv).sum(2));
    dqv.add_(dd * k);
  }
  return dq;
}

}  // namespace aerie::draft
