# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3's training-time test in plain PyTorch, written to be believed rather than to be fast.

One document at a time, every slot at every step, dense attention masks, autograd for the gradients, fp64 throughout. No code
is shared with the C++ trainer, whose results are compared with these (make_golden.py writes them down).

Notation: document of S tokens x_0..x_{S-1} with loss mask m; slot t; step k = 0..K-1; g_t the three captured target states at
slot t; l_t the target's last hidden state after its final norm. Slot (t, k) reads token x_{t+1+k}, and its teacher is the
target's distribution at slot t+1+k, that is, the distribution of x_{t+2+k}.
"""
from dataclasses import dataclass, field

import torch

# Canonical order of the trained tensors, by their exported names.
TENSORS = [
    "fc.weight",
    "midlayer.input_layernorm.weight",
    "midlayer.hidden_norm.weight",
    "midlayer.self_attn.q_proj.weight",
    "midlayer.self_attn.k_proj.weight",
    "midlayer.self_attn.v_proj.weight",
    "midlayer.self_attn.o_proj.weight",
    "midlayer.post_attention_layernorm.weight",
    "midlayer.mlp.gate_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
    "norm.weight",
    "lm_head.weight",
]


@dataclass
class Shape:
    target_hidden_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    rope_theta: float

    def tensor_shapes(self):
        H, q, kv, i = self.hidden_size, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim, self.intermediate_size
        sizes = [(H, 3 * self.target_hidden_size), (H,), (H,), (q, 2 * H), (kv, 2 * H), (kv, 2 * H), (H, q), (H,),
                 (i, H), (i, H), (H, i), (H,), (self.draft_vocab_size, H)]
        return dict(zip(TENSORS, sizes))


@dataclass
class Document:
    ids: torch.Tensor   # [S] int64
    mask: torch.Tensor  # [S] 0 or 1: token t belongs to the assistant
    aux: torch.Tensor   # [S, 3*Ht]: g_t
    last: torch.Tensor  # [S, Ht]: l_t, after the target's final norm


@dataclass
class Target:
    embedding: torch.Tensor  # [V, H], frozen
    lm_head: torch.Tensor    # [V, Ht], frozen
    d2t: torch.Tensor        # [Vd]: target id of draft id i is i + d2t[i]

    def target_ids(self):
        return torch.arange(len(self.d2t)) + self.d2t


@dataclass
class StepResult:
    slots: int = 0          # slots with loss by the mask alone
    in_vocabulary: int = 0  # of those, with the teacher's argmax inside the draft vocabulary
    positions: int = 0      # all positions (the denominator of normalize = "all")
    matches: int = 0
    cumulative: int = 0
    loss: torch.Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    overlap: float = 0.0                # sum over all `slots`
    overlap_in_vocabulary: float = 0.0  # over those with the teacher's argmax inside the draft vocabulary
    margin: float = float("inf")  # smallest gap between the two best logits (draft or teacher): argmax is safe when it is large


def rms_norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def rope(x, positions, theta):
    """Half-split RoPE on x [S, heads, hd]: pair (i, i + hd/2) turns by position / theta^(2i/hd)."""
    half = x.shape[-1] // 2
    frequency = torch.tensor([theta ** (-2.0 * i / x.shape[-1]) for i in range(half)], dtype=x.dtype)
    angle = positions.to(x.dtype)[:, None, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * torch.cos(angle) - b * torch.sin(angle), b * torch.cos(angle) + a * torch.sin(angle)], dim=-1)


def tokens_of_step(ids, k):
    """x_{t+1+k} for every t; token 0 past the end, where no slot exists and nothing is read."""
    S = len(ids)
    return torch.stack([ids[t + 1 + k] if t + 1 + k < S else torch.zeros_like(ids[0]) for t in range(S)])


def slot_has_loss(mask, t, k, alignment):
    S = len(mask)
    if t + 1 + k > S - 1:
        return False
    if alignment == "predicted":
        return t + 2 + k <= S - 1 and bool(mask[t + 2 + k])
    return bool(mask[t + 1 + k] if alignment == "input" else mask[t + k])


def attention(q, keys, values):
    """q [S, heads, hd] of step k; keys, values: of steps 0..k, each [S, heads, hd]. One joint softmax over everything that slot t
    may see: step-0 keys at u <= t, and its own slot's key of steps 1..k."""
    S, heads, hd = q.shape
    u = torch.arange(S)
    causal, own = u[None, :] <= u[:, None], u[None, :] == u[:, None]
    allowed = torch.cat([causal] + [own] * (len(keys) - 1), dim=1)  # [S, (k+1)*S]
    all_k, all_v = torch.cat(keys), torch.cat(values)               # [(k+1)*S, heads, hd]
    out = []
    for h in range(heads):
        scores = q[:, h] @ all_k[:, h].T / hd**0.5
        out.append(torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=1) @ all_v[:, h])
    return torch.stack(out, dim=1)


def draft_steps(shape, w, target, doc, K):
    """Yields the draft's logits [S, Vd] of each step."""
    S, groups = len(doc.ids), shape.num_heads // shape.num_kv_heads
    keys, values = [], []
    h = doc.aux @ w["fc.weight"].T
    for k in range(K):
        e = target.embedding[tokens_of_step(doc.ids, k)]
        u = torch.cat([rms_norm(e, w["midlayer.input_layernorm.weight"], shape.rms_norm_eps),
                       rms_norm(h, w["midlayer.hidden_norm.weight"], shape.rms_norm_eps)], dim=1)

        def heads_of(name, n):
            return (u @ w[f"midlayer.self_attn.{name}_proj.weight"].T).view(S, n, shape.head_dim)

        positions = torch.arange(S) + k  # of the query and of the key of step k
        q = rope(heads_of("q", shape.num_heads), positions, shape.rope_theta)
        key = rope(heads_of("k", shape.num_kv_heads), positions, shape.rope_theta)
        # Query head j uses key/value head j // groups.
        keys.append(key.repeat_interleave(groups, dim=1))
        values.append(heads_of("v", shape.num_kv_heads).repeat_interleave(groups, dim=1))
        a = attention(q, keys, values).reshape(S, -1) @ w["midlayer.self_attn.o_proj.weight"].T

        h1 = h + a  # the residual is h itself, not its norm
        n = rms_norm(h1, w["midlayer.post_attention_layernorm.weight"], shape.rms_norm_eps)
        gate, up = n @ w["midlayer.mlp.gate_proj.weight"].T, n @ w["midlayer.mlp.up_proj.weight"].T
        h2 = h1 + (gate * torch.sigmoid(gate) * up) @ w["midlayer.mlp.down_proj.weight"].T
        yield rms_norm(h2, w["norm.weight"], shape.rms_norm_eps) @ w["lm_head.weight"].T
        h = h2  # fed back before `norm`


def gap(logits):
    best = torch.topk(logits, 2).values
    return float(best[0] - best[1])


def add_document(shape, w, target, doc, K, alignment, oov, steps):
    """Adds one document's sums to `steps`; the losses keep their graphs."""
    S, ids = len(doc.ids), target.target_ids()
    teacher_logits = doc.last @ target.lm_head.T  # [S, V]
    matched_before = [True] * S
    for k, logits in enumerate(draft_steps(shape, w, target, doc, K)):
        steps[k].positions += S
        log_q = torch.log_softmax(logits, dim=1)
        for t in range(S):
            # A slot counts as matched up to k only if each step 0..k has loss there and is right.
            if not slot_has_loss(doc.mask, t, k, alignment):
                matched_before[t] = False
                continue
            full = teacher_logits[t + 1 + k]
            p_full = torch.softmax(full, dim=0)   # over V
            p = torch.softmax(full[ids], dim=0)   # over the draft vocabulary
            best = int(torch.argmax(full))
            in_vocabulary = best in ids.tolist()
            match = int(ids[torch.argmax(logits[t])]) == best
            matched_before[t] = matched_before[t] and match
            steps[k].slots += 1
            steps[k].in_vocabulary += in_vocabulary
            steps[k].matches += match
            steps[k].cumulative += matched_before[t]
            overlap = float(torch.minimum(p_full[ids], torch.exp(log_q[t].detach())).sum())
            steps[k].overlap += overlap
            steps[k].overlap_in_vocabulary += overlap * in_vocabulary
            steps[k].margin = min(steps[k].margin, gap(full), gap(logits[t].detach()))
            if in_vocabulary or oov == "keep":
                steps[k].loss = steps[k].loss - (p * log_q[t]).sum()


def run(shape, weights, target, documents, K, alignment, oov, normalize, decay=0.8, with_grad=True):
    """Returns (list of StepResult with plain numbers, coefficients, total loss, gradients by name)."""
    w = {n: weights[n].detach().clone().requires_grad_(with_grad) for n in TENSORS}
    steps = [StepResult() for _ in range(K)]
    for doc in documents:
        add_document(shape, w, target, doc, K, alignment, oov, steps)
    # n_k is of the whole batch, by the mask alone; a step without slots is dropped.
    n = [s.slots if normalize == "loss" else s.positions for s in steps]
    coefficients = [decay**k / n[k] if n[k] else 0.0 for k in range(K)]
    total = sum(c * s.loss for c, s in zip(coefficients, steps))
    grads = {}
    if with_grad:
        got = torch.autograd.grad(total, [w[name] for name in TENSORS], allow_unused=True)
        grads = {name: torch.zeros_like(w[name]) if g is None else g for name, g in zip(TENSORS, got)}
    for s in steps:
        s.loss = float(s.loss.detach())
    return steps, coefficients, float(total.detach()), grads


def choices(shape, weights, target, documents, K):
    """For each slot and step of the documents one after another: the draft's choice and the teacher's, as target ids, and the
    overlap. [K, T]; -1, -1 and 0 where slot (t, k) does not exist. The mask plays no part."""
    T, ids, at = sum(len(d.ids) for d in documents), target.target_ids(), 0
    draft, teacher = torch.full((K, T), -1), torch.full((K, T), -1)
    overlap = torch.zeros(K, T, dtype=torch.float64)
    for doc in documents:
        S, full = len(doc.ids), doc.last @ target.lm_head.T
        for k, logits in enumerate(draft_steps(shape, weights, target, doc, K)):
            for t in range(S - 1 - k):
                draft[k, at + t] = ids[logits[t].argmax()]
                teacher[k, at + t] = full[t + 1 + k].argmax()
                overlap[k, at + t] = torch.minimum(torch.softmax(full[t + 1 + k], 0)[ids], torch.softmax(logits[t], 0)).sum()
        at += S
    return draft, teacher, overlap
