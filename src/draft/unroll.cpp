// SPDX-License-Identifier: Apache-2.0
// K unrolled steps, forward and explicit backward, over the active slots of one pack. Per step h, u, q, own k and v, attention
// output and its log-sum-exp, gate and up are kept; norms and SwiGLU are recomputed. Weight gradients are taken once per weight
// over the rows of all steps.
#include <aerie/draft/unroll.hpp>

#include "head_loss.hpp"
#include "pack_plan.hpp"
#include "primitives.hpp"
#include "step_attention.hpp"
#include "teacher.hpp"

#include <string>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>

namespace aerie::draft {

Oov oov_from_name(std::string_view name) {
  if (name == "mask") return Oov::mask;
  if (name == "keep") return Oov::keep;
  throw base::ConfigError(fmt::format("train.oov = \"{}\": must be mask or keep", name));
}

namespace {

/// Everything that does not change over the steps of one pack.
struct Context {
  const DrafterShape& shape;
  const DrafterWeights& w;
  AttentionShape attention;
  PackPlan plan;
  RotaryTable rotary;
  at::Tensor draft_ids;  // i64 [Vd]
  Teacher teacher;
  at::Tensor aux;  // [F, 3Ht] rows of the full set
};

/// Kept from the forward pass of one step.
struct StepState {
  at::Tensor h_in;  // [n, H]; step 0: rows of the full set [F, H]
  at::Tensor e;     // embedding rows of the same rows
  at::Tensor u;     // [n, 2H]; step 0: [F, 2H]
  at::Tensor q;     // [n, heads, hd], rotated
  at::Tensor k, v;  // [n, kv, hd], k rotated; step 0: [F, kv, hd]
  AttentionResult attention;
  at::Tensor h1, p, gate, up;
  at::Tensor d_h2;  // [n, H] op type: gradient of this step's own loss
};

at::Tensor normed_input(const Context& c, const at::Tensor& e, const at::Tensor& h) {
  return at::cat({rms_norm(e, c.w.input_norm, c.shape.rms_norm_eps), rms_norm(h, c.w.hidden_norm, c.shape.rms_norm_eps)}, 1);
}

/// Forward of one step up to h2. `own` collects keys and values of steps >= 1.
at::Tensor step_forward(const Context& c, const at::Tensor& embedding, std::int64_t step, const at::Tensor& h, StepState& s,
                        const StepState* first, std::vector<at::Tensor>& own_k, std::vector<at::Tensor>& own_v) {
  const auto& w = c.w;
  const auto hd = c.attention.head_dim;
  const auto& ids = step == 0 ? c.plan.full_next_ids : c.plan.active_ids[static_cast<std::size_t>(step)];
  const auto position = step == 0 ? c.plan.full_positions : c.plan.active_positions + step;
  s.h_in = h;
  s.e = embedding.index_select(0, ids);
  s.u = normed_input(c, s.e, h);
  s.k = rotate(at::mm(s.u, w.k.t()).view({-1, c.attention.kv_heads, hd}), c.rotary, position);
  s.v = at::mm(s.u, w.v.t()).view({-1, c.attention.kv_heads, hd});
  const auto u = step == 0 ? s.u.index_select(0, c.plan.active_in_full) : s.u;
  const auto residual = step == 0 ? h.index_select(0, c.plan.active_in_full) : h;
  s.q = rotate(at::mm(u, w.q.t()).view({-1, c.attention.heads, hd}), c.rotary, c.plan.active_positions + step);
  if (step > 0) {
    own_k.push_back(s.k);
    own_v.push_back(s.v);
  }
  const auto& k0 = step == 0 ? s.k : first->k;
  const auto& v0 = step == 0 ? s.v : first->v;
  s.attention = step_attention(c.attention, c.plan, s.q, k0, v0, own_k, own_v);
  s.h1 = residual + at::mm(s.attention.out.view({c.plan.n_active, -1}), w.o.t());
  s.p = rms_norm(s.h1, w.post_norm, c.shape.rms_norm_eps);
  s.gate = at::mm(s.p, w.gate.t());
  s.up = at::mm(s.p, w.up.t());
  return s.h1 + at::mm(swiglu(s.gate, s.up), w.down.t());
}

/// Row-level results of one step, for counts and for evaluation.
struct StepRowsOut {
  at::Tensor draft_id, teacher_id, overlap;  // [r_k]
  double loss = 0;
};

/// Loss of one step at `h2`; with gradients, fills s.d_h2 and adds to norm's and the head's gradients.
StepRowsOut step_loss(const Context& c, std::int64_t step, const at::Tensor& h2, StepState& s, const UnrollOptions& options,
                      double coefficient, DrafterWeights* grads) {
  const auto& rows = c.plan.steps[static_cast<std::size_t>(step)];
  StepRowsOut out;
  const auto hr = h2.index_select(0, rows.rows);
  HeadLossInput in;
  in.y = rms_norm(hr, c.w.norm, c.shape.rms_norm_eps);
  in.head = c.w.lm_head;
  in.teacher_row = rows.teacher;
  in.draft_ids = c.draft_ids;
  in.coefficient = coefficient;
  in.mask_oov = options.oov == Oov::mask;
  in.chunk_slots = options.chunk_slots;
  const bool train = grads != nullptr;
  auto result = head_loss(in, c.teacher, train ? grads->lm_head : at::Tensor());
  out.draft_id = result.draft_id;
  out.teacher_id = c.teacher.argmax.index_select(0, rows.teacher);
  out.overlap = result.overlap;
  out.loss = result.loss;
  if (train) {
    s.d_h2 = at::zeros({c.plan.n_active, c.shape.hidden_size}, h2.options().dtype(op_type(h2.scalar_type())));
    s.d_h2.index_copy_(0, rows.rows, rms_norm_backward(result.dy, hr, c.w.norm, c.shape.rms_norm_eps, grads->norm));
  }
  return out;
}

/// Backward of all steps, last to first.
void backward(const Context& c, std::vector<StepState>& steps, DrafterWeights& grads) {
  const auto& w = c.w;
  const auto K = static_cast<std::int64_t>(steps.size());
  const auto n = c.plan.n_active, H = c.shape.hidden_size;
  const auto compute = w.fc.scalar_type();
  const auto op = op_type(compute);
  const auto eps = c.shape.rms_norm_eps;
  const auto zeros_kv = [&](std::int64_t rows) {
    return at::zeros({rows, c.attention.kv_heads, c.attention.head_dim}, w.fc.options().dtype(op));
  };
  const auto dk0 = zeros_kv(c.plan.n_full), dv0 = zeros_kv(c.plan.n_full);
  std::vector<at::Tensor> own_k, own_v, d_own_k, d_own_v;  // of steps 1..K-1
  for (std::int64_t k = 1; k < K; ++k) {
    own_k.push_back(steps[static_cast<std::size_t>(k)].k);
    own_v.push_back(steps[static_cast<std::size_t>(k)].v);
    d_own_k.push_back(zeros_kv(n));
    d_own_v.push_back(zeros_kv(n));
  }

  // Rows of all steps, for one weight-gradient product per weight.
  struct Rows {
    std::vector<at::Tensor> d, x;
    void add(const at::Tensor& dy, const at::Tensor& in) {
      d.push_back(dy);
      x.push_back(in);
    }
    void finish(const at::Tensor& grad) const { add_weight_grad(grad, at::cat(d), at::cat(x)); }
  } of_q, of_k, of_v, of_o, of_gate, of_up, of_down;

  auto d_h = at::zeros({n, H}, w.fc.options().dtype(op));  // gradient of the state fed to the next step
  for (std::int64_t k = K - 1; k >= 0; --k) {
    auto& s = steps[static_cast<std::size_t>(k)];
    const auto d_h2 = d_h.add_(s.d_h2);
    // MLP
    const auto d_h2c = d_h2.to(compute);
    const auto act = swiglu(s.gate, s.up);
    of_down.add(d_h2c, act);
    const auto d_act = swiglu_backward(at::mm(d_h2c, w.down), s.gate, s.up);
    of_gate.add(d_act.gate, s.p);
    of_up.add(d_act.up, s.p);
    const auto d_p = at::mm(d_act.gate, w.gate).to(op).add_(at::mm(d_act.up, w.up));
    const auto d_h1 = d_h2 + rms_norm_backward(d_p, s.h1, w.post_norm, eps, grads.post_norm);
    // Attention
    const auto d_h1c = d_h1.to(compute);
    of_o.add(d_h1c, s.attention.out.view({n, -1}));
    const auto d_out = at::mm(d_h1c, w.o).view({n, c.attention.heads, c.attention.head_dim});
    const std::vector<at::Tensor> ok(own_k.begin(), own_k.begin() + k), ov(own_v.begin(), own_v.begin() + k),
        dok(d_own_k.begin(), d_own_k.begin() + k), dov(d_own_v.begin(), d_own_v.begin() + k);
    const auto dq_rotated =
        step_attention_backward(c.attention, c.plan, d_out, s.attention, s.q, steps[0].k, steps[0].v, ok, ov, dk0, dv0, dok, dov);
    const auto dq = rotate(dq_rotated, c.rotary, c.plan.active_positions + k, true).view({n, -1}).to(compute);
    const auto u_active = k == 0 ? s.u.index_select(0, c.plan.active_in_full) : s.u;
    of_q.add(dq, u_active);
    const auto rows = k == 0 ? c.plan.n_full : n;
    const auto& dk_rotated = k == 0 ? dk0 : d_own_k[static_cast<std::size_t>(k - 1)];
    const auto dk = rotate(dk_rotated, c.rotary, k == 0 ? c.plan.full_positions : c.plan.active_positions + k, true)
                        .view({rows, -1})
                        .to(compute);
    const auto dv = (k == 0 ? dv0 : d_own_v[static_cast<std::size_t>(k - 1)]).view({rows, -1}).to(compute);
    of_k.add(dk, s.u);
    of_v.add(dv, s.u);
    auto d_u = at::mm(dk, w.k).to(op).add_(at::mm(dv, w.v));
    const auto d_u_q = at::mm(dq, w.q).to(op);
    if (k == 0)
      d_u.index_add_(0, c.plan.active_in_full, d_u_q);
    else
      d_u.add_(d_u_q);
    // Input norms: the embedding is frozen, the hidden state goes back to the previous step (or to fc).
    rms_norm_backward(d_u.narrow(1, 0, H), s.e, w.input_norm, eps, grads.input_norm);
    const auto d_hidden = rms_norm_backward(d_u.narrow(1, H, H), s.h_in, w.hidden_norm, eps, grads.hidden_norm);
    if (k == 0) {
      auto d_full = d_hidden;
      d_full.index_add_(0, c.plan.active_in_full, d_h1);
      add_weight_grad(grads.fc, d_full.to(compute), c.aux);
    } else {
      d_h = d_h1 + d_hidden;
    }
  }
  of_q.finish(grads.q);
  of_k.finish(grads.k);
  of_v.finish(grads.v);
  of_o.finish(grads.o);
  of_gate.finish(grads.gate);
  of_up.finish(grads.up);
  of_down.finish(grads.down);
}

Context make_context(const DrafterShape& shape, const DrafterWeights& weights, const TargetHead& target,
                     const interchange::VocabMap& vocab, const PackBatch& pack, const UnrollOptions& options) {
  base::expect(shape.num_heads % shape.num_kv_heads == 0, "heads are a multiple of kv_heads");
  const auto device = weights.fc.device();
  Context c{shape,
            weights,
            {shape.num_heads, shape.num_kv_heads, shape.head_dim},
            plan_pack(pack, options.ttt_steps, options.alignment, device),
            {},
            {},
            {},
            {}};
  if (c.plan.n_active == 0) return c;
  c.rotary =
      rotary_table(shape.rope, shape.head_dim, shape.max_position_embeddings, c.plan.max_position + 1, weights.fc.options());
  const auto Vd = vocab.draft_size();
  c.draft_ids = (at::tensor(at::ArrayRef<std::int64_t>(vocab.d2t), at::kLong) + at::arange(Vd, at::kLong)).to(device);
  const auto t2d = at::tensor(at::ArrayRef<std::uint8_t>(vocab.t2d), at::kByte).to(at::kBool).to(device);
  c.teacher = make_teacher(pack.last.index_select(0, c.plan.teacher_tokens), target.lm_head, c.draft_ids, t2d,
                           options.chunk_slots, options.chunk_vocab);
  c.aux = pack.aux.index_select(0, c.plan.full_tokens);
  return c;
}

/// Runs forward and, with `grads`, backward; hands each step's rows to `sink(step, rows)`.
template <class Sink>
double run(const Context& c, const TargetHead& target, const UnrollOptions& options, std::span<const double> coefficients,
           DrafterWeights* grads, Sink&& sink) {
  std::vector<StepState> steps(static_cast<std::size_t>(options.ttt_steps));
  std::vector<at::Tensor> own_k, own_v;
  auto h = at::mm(c.aux, c.w.fc.t());
  double weighted = 0;
  for (std::int64_t k = 0; k < options.ttt_steps; ++k) {
    auto& s = steps[static_cast<std::size_t>(k)];
    h = step_forward(c, target.embedding, k, h, s, k == 0 ? nullptr : &steps[0], own_k, own_v);
    const double coefficient = coefficients.empty() ? 0.0 : coefficients[static_cast<std::size_t>(k)];
    const auto out = step_loss(c, k, h, s, options, coefficient, grads);
    weighted += coefficient * out.loss;
    sink(k, out);
    if (!grads && k > 0) s = StepState{};  // own keys and values stay in own_k and own_v
  }
  if (grads) backward(c, steps, *grads);
  return weighted;
}

}  // namespace

UnrollResult unroll(const DrafterShape& shape, const DrafterWeights& weights, const TargetHead& target,
                    const interchange::VocabMap& vocab, const PackBatch& pack, const UnrollOptions& options,
                    std::span<const double> coefficients, DrafterWeights* grads) {
  base::expect(static_cast<std::int64_t>(coefficients.size()) == options.ttt_steps, "one coefficient per step");
  const c10::NoGradGuard no_grad;
  UnrollResult result;
  result.steps.resize(static_cast<std::size_t>(options.ttt_steps));
  const auto c = make_context(shape, weights, target, vocab, pack, options);
  if (c.plan.n_active == 0) return result;
  auto alive = at::ones({c.plan.n_active}, weights.fc.options().dtype(at::kBool));  // matched at every step so far
  result.weighted_loss = run(c, target, options, coefficients, grads, [&](std::int64_t k, const StepRowsOut& out) {
    const auto& rows = c.plan.steps[static_cast<std::size_t>(k)];
    auto& sums = result.steps[static_cast<std::size_t>(k)];
    const auto match = out.draft_id == out.teacher_id;
    auto next = at::zeros_like(alive);
    next.index_copy_(0, rows.rows, match & alive.index_select(0, rows.rows));
    alive = next;
    sums.slots = rows.count;
    sums.matches = match.sum().item<std::int64_t>();
    sums.cumulative = alive.sum().item<std::int64_t>();
    sums.loss = out.loss;
    sums.overlap = out.overlap.to(at::kDouble).sum().item<double>();
  });
  return result;
}

DraftChoices draft_choices(const DrafterShape& shape, const DrafterWeights& weights, const TargetHead& target,
                           const interchange::VocabMap& vocab, const PackBatch& pack, std::int64_t ttt_steps) {
  const c10::NoGradGuard no_grad;
  UnrollOptions options;
  options.ttt_steps = ttt_steps;
  const auto T = static_cast<std::int64_t>(pack.ids.size());
  DraftChoices choices{at::full({ttt_steps, T}, -1, at::kLong), at::full({ttt_steps, T}, -1, at::kLong),
                       at::zeros({ttt_steps, T}, at::kDouble)};
  const auto c = make_context(shape, weights, target, vocab, pack, options);
  if (c.plan.n_active == 0) return choices;
  run(c, target, options, {}, nullptr, [&](std::int64_t k, const StepRowsOut& out) {
    const auto tokens = c.plan.active_tokens.index_select(0, c.plan.steps[static_cast<std::size_t>(k)].rows).cpu();
    choices.draft_ids[k].index_copy_(0, tokens, out.draft_id.cpu());
    choices.teacher_ids[k].index_copy_(0, tokens, out.teacher_id.cpu());
    choices.overlap[k].index_copy_(0, tokens, out.overlap.cpu().to(at::kDouble));
  });
  return choices;
}

}  // namespace aerie::draft
