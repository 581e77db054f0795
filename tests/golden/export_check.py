# SPDX-License-Identifier: Apache-2.0
"""Evaluates an exported drafter from its files alone, in plain PyTorch, and prints what aerie's own evaluation prints.

    python export_check.py EXPORT TARGET DATASET [--limit N] [--steps K] [--convention sglang|vllm] [--compare RUN/eval.json]

EXPORT   config.json and model.safetensors as SGLang or vLLM load them    TARGET  the target's Hugging Face folder
DATASET  tokens and loss masks (HDF5; include/aerie/dataset/dataset.hpp)
Needs torch, transformers, h5py, safetensors. The target runs in fp32, the drafter in fp32 from the exported weights, teacher-forced, K
steps. Nothing is shared with aerie's code: names, shapes, layer ids and RoPE are read as the engines read them.

Per-step match (mask alignment `predicted`): slot (t, k) counts when token t+2+k exists and belongs to the assistant; it matches when the
drafter's argmax, mapped by d2t, is the target's argmax over its whole vocabulary at slot t+1+k.
Chain tau for K drafted tokens: walk each assistant turn; at slot t the target has given x_{t+1}; the drafted tokens are accepted while
they equal the text that follows and the turn lasts; accepted + 1 tokens are emitted; tau = emitted / rounds.
"""
import argparse
import json
from pathlib import Path

import h5py
import torch
from safetensors import safe_open

LAYER = ["input_layernorm", "hidden_norm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
         "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


class Drafter:
    def __init__(self, folder, embedding, convention):
        self.config = c = json.loads((folder / "config.json").read_text())
        with safe_open(folder / "model.safetensors", "pt") as f:
            self.w = {n: f.get_tensor(n) for n in f.keys()}
        self.check()
        self.w = {n: t.float() if t.is_floating_point() else t for n, t in self.w.items()}
        self.embedding = self.w.get("embed_tokens.weight", embedding)
        self.ids = torch.arange(len(self.w["d2t"])) + self.w["d2t"]
        assert torch.equal(torch.nonzero(self.w["t2d"]).flatten(), self.ids), "d2t and t2d name different tokens"
        self.heads, self.kv, self.hd, self.eps = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
        self.frequency, self.rope_scale = self.rope()
        # vLLM reads the list at top level (ids of inputs of layers); SGLang reads eagle_config (ids of outputs: one less).
        vllm = c.get("eagle_aux_hidden_state_layer_ids")
        self.convention = convention or ("vllm" if vllm else "sglang")
        ids = vllm if self.convention == "vllm" else [i + 1 for i in c["eagle_config"]["eagle_aux_hidden_state_layer_ids"]]
        self.aux_layers = ids

    def check(self):
        """Every tensor that an engine asks for is there under its name, in its shape, and nothing else is."""
        c, w = self.config, self.w
        assert c["architectures"] == ["LlamaForCausalLMEagle3"] and c["num_hidden_layers"] == 1, c["architectures"]
        H, I, Vd, V = c["hidden_size"], c["intermediate_size"], c["draft_vocab_size"], c["vocab_size"]
        q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        layer = [[H], [H], [H], [q, 2 * H], [kv, 2 * H], [kv, 2 * H], [H, q], [I, H], [I, H], [H, I]]
        expected = {f"midlayer.{n}.weight": s for n, s in zip(LAYER, layer)}
        expected |= {"norm.weight": [H], "lm_head.weight": [Vd, H], "d2t": [Vd], "t2d": [V]}
        expected["fc.weight"] = [H, 3 * c.get("target_hidden_size", H)]
        found = {n: list(t.shape) for n, t in w.items() if n != "embed_tokens.weight"}
        assert found == expected, {n: (found.get(n), expected.get(n)) for n in found.keys() | expected.keys() if found.get(n) != expected.get(n)}
        assert w["d2t"].dtype == torch.int64 and w["t2d"].dtype == torch.bool, "d2t must be int64 and t2d bool"

    def rope(self):
        """As the engines do: through transformers' own table for the configured kind."""
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
        c = self.config
        config = LlamaConfig(**{k: c[k] for k in ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "rope_theta")},
                             rope_scaling=c.get("rope_scaling"))
        table = LlamaRotaryEmbedding(config)
        return table.inv_freq.float(), table.attention_scaling

    def norm(self, x, name):
        return self.w[name] * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)

    def rotate(self, x, positions):
        angle = positions.float()[:, None, None] * self.frequency
        cos, sin = torch.cos(angle) * self.rope_scale, torch.sin(angle) * self.rope_scale
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def steps(self, ids, aux, K):
        """Teacher-forced. Yields each step's choice [S] as target ids; meaningful at slots with t+1+k < S."""
        S, m = len(ids), "midlayer."
        h, k_all, v_all = aux @ self.w["fc.weight"].T, [], []
        future = torch.ones(S, S, dtype=torch.bool).triu(1)
        for k in range(K):
            tokens = torch.cat([ids[1 + k:], ids.new_zeros(min(S, 1 + k))])
            u = torch.cat([self.norm(self.embedding[tokens], m + "input_layernorm.weight"), self.norm(h, m + "hidden_norm.weight")], dim=1)
            positions = torch.arange(S) + k
            q = self.rotate((u @ self.w[m + "self_attn.q_proj.weight"].T).view(S, self.heads, self.hd), positions)
            key = self.rotate((u @ self.w[m + "self_attn.k_proj.weight"].T).view(S, self.kv, self.hd), positions)
            value = (u @ self.w[m + "self_attn.v_proj.weight"].T).view(S, self.kv, self.hd)
            k_all.append(key.repeat_interleave(self.heads // self.kv, dim=1))
            v_all.append(value.repeat_interleave(self.heads // self.kv, dim=1))
            # Scores against all step-0 keys up to the slot, and against the slot's own later keys; one softmax over both.
            scores = torch.einsum("thd,uhd->htu", q, k_all[0]).masked_fill(future, float("-inf"))
            own = [torch.einsum("thd,thd->ht", q, x)[..., None] for x in k_all[1:]]
            p = torch.softmax(torch.cat([scores, *own], dim=-1) / self.hd**0.5, dim=-1)
            a = torch.einsum("htu,uhd->thd", p[..., :S], v_all[0])
            for i, v in enumerate(v_all[1:]):
                a = a + p[..., S + i].T[..., None] * v
            h1 = h + a.reshape(S, -1) @ self.w[m + "self_attn.o_proj.weight"].T
            n = self.norm(h1, m + "post_attention_layernorm.weight")
            g = n @ self.w[m + "mlp.gate_proj.weight"].T
            h = h1 + (torch.nn.functional.silu(g) * (n @ self.w[m + "mlp.up_proj.weight"].T)) @ self.w[m + "mlp.down_proj.weight"].T
            yield self.ids[(self.norm(h, "norm.weight") @ self.w["lm_head.weight"].T).argmax(-1)]


class Target:
    def __init__(self, folder):
        from transformers import AutoModelForCausalLM
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.embedding = self.model.get_input_embeddings().weight.detach()

    def states(self, ids, layers):
        """Inputs of the layers, one beside the other, and the argmax over the whole vocabulary at each slot."""
        out = self.model(ids[None], output_hidden_states=True, use_cache=False)
        return torch.cat([out.hidden_states[i][0] for i in layers], dim=1), out.logits[0].argmax(-1)


def samples(path, limit):
    with h5py.File(path, "r") as f:
        offsets, reject = f["offsets"][:], f["reject"][:]
        used = [i for i in range(len(reject)) if reject[i] == 0 and offsets[i + 1] > offsets[i]][:limit]
        for i in used:
            part = slice(offsets[i], offsets[i + 1])
            yield torch.tensor(f["input_ids"][part]).long(), torch.tensor(f["loss_mask"][part]).bool()


def chain(ids, mask, drafted, K):
    """(emitted, rounds) over one sample's assistant turns. drafted[k][t] stands for x_{t+2+k}."""
    S, emitted, rounds, begin = len(ids), 0, 0, 0
    while begin < S:
        if not mask[begin]:
            begin += 1
            continue
        end = begin
        while end < S and mask[end]:
            end += 1
        # The turn is x_begin .. x_{end-1}. At slot t = begin-1 the target has given x_begin.
        t = max(begin - 1, 0)
        while t + 2 < end:  # something is left to draft
            a = 0
            while a < K and t + 2 + a < end and drafted[a][t] == ids[t + 2 + a]:
                a += 1
            rounds, emitted = rounds + 1, emitted + a + 1
            t += a + 1
        begin = end
    return emitted, rounds


def their_matches(path):
    """The trained drafter's per-step match in an eval.json."""
    return json.loads(path.read_text())["trained"]["match"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--convention", choices=["sglang", "vllm"])
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--points", type=float, default=0.5, help="allowed difference, in points of per cent")
    args = parser.parse_args()

    target = Target(args.target)
    drafter = Drafter(args.export, target.embedding, args.convention)
    K = args.steps
    slots, matches, tau = [0] * K, [0] * K, {n: [0, 0] for n in (3, 7) if n <= K}
    with torch.inference_mode():
        for ids, mask in samples(args.dataset, args.limit):
            S = len(ids)
            aux, teacher = target.states(ids, drafter.aux_layers)
            drafted = list(drafter.steps(ids, aux, K))
            for k in range(min(K, S - 2)):
                n = S - 2 - k  # slots t = 0 .. S-3-k
                if n <= 0:
                    break
                counted = mask[2 + k:]
                slots[k] += int(counted.sum())
                matches[k] += int((counted & (drafted[k][:n] == teacher[1 + k:1 + k + n])).sum())
            for n, sums in tau.items():
                emitted, rounds = chain(ids.tolist(), mask.tolist(), [d.tolist() for d in drafted], n)
                sums[0], sums[1] = sums[0] + emitted, sums[1] + rounds
    match = [m / s if s else 0.0 for m, s in zip(matches, slots)]
    result = {"convention": drafter.convention, "aux_layers_input_of": drafter.aux_layers, "slots": slots, "matches": matches, "match": match,
              "tau": {str(n): e / r if r else 0.0 for n, (e, r) in tau.items()}}
    print(json.dumps(result, indent=1))
    if args.compare:
        theirs = their_matches(args.compare)
        worst = max(abs(a - b) for a, b in zip(match, theirs)) * 100
        print(f"largest difference of the per-step match to {args.compare}: {worst:.3f} points, allowed {args.points}")
        raise SystemExit(0 if worst <= args.points and len(theirs) >= K else 1)


if __name__ == "__main__":
    main()
