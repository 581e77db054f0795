#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden fixtures of the target's forward pass with Hugging Face transformers.

Tiny random checkpoints (weights ~ N(0, 1/in), norms 1 + 0.2 N(0, 1), biases 0.2 N(0, 1), because default initialisation hides
errors) and the states that transformers computes from them: every residual entering a layer, the raw output of the last layer
(by a hook, as `hidden_states[-1]` is taken after the final norm) and the final state, at chosen positions of samples of
lengths around a power of two, most of them past the rope scaling's original length.

    python3 make_golden.py [OUT]     # OUT: this folder by default

Per model OUT/<name>/: config.json, model.safetensors (where the weights are its own), golden.safetensors. OUT/golden.json
records versions, seeds, samples and transformers' own bf16 distances.
"""
import json
import os
import platform
import sys

import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

LENGTHS = [1, 2, 127, 128, 129]
POSITIONS = [0, 1, 2, 17, 33, 64, 96, 126, 127, 128]
HIDDEN, LAYERS, VOCAB, INNER = 64, 4, 128, 96

COMMON = dict(hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, vocab_size=VOCAB,
              max_position_embeddings=256, num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32,
              rope_theta=500000.0)
YARN = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32, rope_theta=1e6)

# name: (seed, stored dtype or the name of the model that the weights are shared with, config)
MODELS = {
    "llama": (11, torch.float32, dict(COMMON, model_type="llama", rms_norm_eps=1e-5, tie_word_embeddings=False,
                                      rope_parameters=LLAMA3)),
    "llama_eps": (11, "llama", dict(COMMON, model_type="llama", rms_norm_eps=1e-2, tie_word_embeddings=False,
                                    rope_parameters=LLAMA3)),
    "qwen2": (12, torch.bfloat16, dict(COMMON, model_type="qwen2", rms_norm_eps=1e-6, tie_word_embeddings=True,
                                       use_sliding_window=False, rope_parameters=YARN)),
    "qwen3": (13, torch.float16, dict(COMMON, model_type="qwen3", rms_norm_eps=1e-6, tie_word_embeddings=False, head_dim=24,
                                      use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
}


def randomise(model, seed, stored):
    """Fills every parameter from its own generator, so that adding a tensor moves no other."""
    for n, (name, p) in enumerate(sorted(model.named_parameters())):
        gen = torch.Generator().manual_seed(seed * 1000 + n)
        r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
        if name.endswith("norm.weight"):
            value = 1 + 0.2 * r
        elif name.endswith(".bias"):
            value = 0.2 * r
        elif "embed_tokens" in name:
            value = r
        else:
            value = r / p.shape[1] ** 0.5
        p.data.copy_(value.to(stored))  # the fp32 model computes with exactly the stored values


def samples(seed):
    gen = torch.Generator().manual_seed(seed + 77)
    return [torch.randint(0, VOCAB, (n,), generator=gen) for n in LENGTHS]


def states(model, ids):
    """[LAYERS + 1, T, H] residuals and [T, H] final state."""
    raw = {}
    hook = model.model.layers[-1].register_forward_hook(
        lambda m, a, out: raw.__setitem__("x", (out[0] if isinstance(out, tuple) else out).detach()))
    with torch.no_grad():
        out = model.model(input_ids=ids[None], output_hidden_states=True, use_cache=False)
    hook.remove()
    residuals = torch.stack([*(h[0] for h in out.hidden_states[:LAYERS]), raw["x"].reshape(len(ids), -1)])
    return residuals.float(), out.last_hidden_state[0].float()


def relative(a, b):
    return float((a - b).double().norm() / b.double().norm())


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    record = {"made_with": {"transformers": transformers.__version__, "torch": torch.__version__,
                            "safetensors": safetensors.__version__, "python": platform.python_version()},
              "lengths": LENGTHS, "positions": POSITIONS, "models": {}}
    for name, (seed, stored, settings) in MODELS.items():
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        own = not isinstance(stored, str)
        dtype = stored if own else MODELS[stored][1]
        settings = dict(settings)
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        config.dtype = dtype
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
        randomise(model, seed, dtype)
        weights = {k: v.to(dtype).contiguous().clone() for k, v in model.state_dict().items()
                   if not (settings["tie_word_embeddings"] and k == "lm_head.weight")}
        if own:
            save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        saved = config.to_dict()
        saved["architectures"] = [type(model).__name__]
        saved["dtype"] = str(dtype).removeprefix("torch.")
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(saved, f, indent=1, sort_keys=True, default=str)
            f.write("\n")

        half = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16).eval()
        half.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
        half.model.rotary_emb = model.model.rotary_emb  # inverse frequencies stay fp32, as from_pretrained leaves them
        golden, full, full16 = {}, [], []
        for ids in samples(seed):
            n = len(ids)
            r, last = states(model, ids)
            r16, last16 = states(half, ids)
            full.append((r, last))
            full16.append((r16, last16))
            at = [p for p in POSITIONS if p < n]
            golden[f"ids.{n}"] = ids.to(torch.int32)
            golden[f"positions.{n}"] = torch.tensor(at, dtype=torch.int32)
            golden[f"residuals.{n}"] = r[:, at].contiguous()
            golden[f"last.{n}"] = last[at].contiguous()
            golden[f"bf16.residual_out.{n}"] = r16[LAYERS, at].to(torch.bfloat16).contiguous()
            golden[f"bf16.last.{n}"] = last16[at].to(torch.bfloat16).contiguous()
        save_file(golden, os.path.join(folder, "golden.safetensors"))

        def stored_positions(pairs, pick):
            return torch.cat([pick(p)[[i for i in POSITIONS if i < n]] for p, n in zip(pairs, LENGTHS)])
        own_distance = [relative(stored_positions(full16, lambda p, i=i: p[0][i]), stored_positions(full, lambda p, i=i: p[0][i]))
                        for i in range(LAYERS + 1)]
        own_last = relative(stored_positions(full16, lambda p: p[1]), stored_positions(full, lambda p: p[1]))
        record["models"][name] = {"seed": seed, "stored": str(dtype).removeprefix("torch."),
                                  "weights_of": name if own else stored,
                                  "bf16_distance_residuals": own_distance, "bf16_distance_last": own_last}
        print(name, "bf16 distances", ["%.2e" % d for d in own_distance], "last %.2e" % own_last)
    with open(os.path.join(out, "golden.json"), "w") as f:
        json.dump(record, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
