# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of the draft model, from reference.py (never from aerie).

    python make_golden.py [OUT]      # OUT: data/ beside this script; needs torch and safetensors

For each problem P: P.json (shape, losses and counts of each step), P.inputs.safetensors, P.choices.safetensors (each slot's argmax) and,
for each case, P.ALIGNMENT.OOV.NORMALIZE.safetensors with every weight's gradient (F64). Problem `square` has H == Ht and all 12 cases; `wide` has Ht > H, heads * head_dim != H, another
number of kv heads and the three alignments.
The RoPE base is a power of two, so that the inverse frequencies, which aerie keeps in fp32, are exact in either precision.
"""
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file

import reference as ref

K = 4
ALIGNMENTS, OOVS, NORMALIZATIONS = ["predicted", "input", "hidden"], ["mask", "keep"], ["loss", "all"]
# Documents of 1, 2, 3, 9 and 14 tokens. In the last one the first slots have no loss at any step but are attended to by those that do.
MASKS = [
    [1],
    [1, 1],
    [0, 1, 1],
    [0, 1, 1, 0, 1, 1, 1, 1, 1],
    [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1],
]
DRAFT_IDS = [1, 2, 5, 6, 7, 13, 14, 20, 22, 31, 38, 39]  # of 40
PROBLEMS = {
    "square": ref.Shape(16, 16, 24, 4, 2, 4, 40, 12, rms_norm_eps=1e-5, rope_theta=256.0),
    "wide": ref.Shape(24, 16, 24, 6, 3, 8, 40, 12, rms_norm_eps=1e-6, rope_theta=256.0),
}
CASES = {
    "square": list(itertools.product(ALIGNMENTS, OOVS, NORMALIZATIONS)),
    "wide": [("predicted", "mask", "loss"), ("input", "keep", "loss"), ("hidden", "mask", "all")],
}


def normal(generator, *size):
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def make_target(shape, generator):
    ids = torch.tensor(DRAFT_IDS)
    lm_head = 1.2 * normal(generator, shape.vocab_size, shape.target_hidden_size)
    lm_head[ids] *= 1.8  # so that most, but not all, of the teacher's choices can be said by the draft
    return ref.Target(normal(generator, shape.vocab_size, shape.hidden_size), lm_head, ids - torch.arange(len(ids)))


def make_documents(shape, generator, masks):
    out = []
    for mask in masks:
        S = len(mask)
        ids = torch.randint(0, shape.vocab_size, (S,), generator=generator)
        last = normal(generator, S, shape.target_hidden_size) / 2
        out.append(ref.Document(ids, torch.tensor(mask), normal(generator, S, 3 * shape.target_hidden_size), last))
    return out


def make_weights(shape, generator, target, documents, adam_steps=60):
    """Random, then trained a little on these documents: an untrained draft is right once in 40 and would leave nothing to count."""
    w = {}
    for name, size in shape.tensor_shapes().items():
        w[name] = 1 + 0.2 * normal(generator, *size) if len(size) == 1 else normal(generator, *size) / size[1] ** 0.5
    parameters = [p.requires_grad_(True) for p in w.values()]
    adam = torch.optim.Adam(parameters, lr=0.02)
    for _ in range(adam_steps):
        _, _, _, grads = ref.run(shape, w, target, documents, K, "input", "mask", "loss")
        for name, p in w.items():
            p.grad = grads[name]
        adam.step()
    return {name: p.detach() for name, p in w.items()}


def write_inputs(path, shape, weights, target, documents):
    t2d = torch.zeros(shape.vocab_size, dtype=torch.bool)
    t2d[target.target_ids()] = True
    tensors = {f"weights.{n}": weights[n].contiguous() for n in ref.TENSORS}
    tensors |= {
        "target.embedding": target.embedding, "target.lm_head": target.lm_head, "d2t": target.d2t, "t2d": t2d,
        "lengths": torch.tensor([len(d.ids) for d in documents]),
        "ids": torch.cat([d.ids for d in documents]).to(torch.int32),
        "mask": torch.cat([d.mask for d in documents]).to(torch.uint8),
        "aux": torch.cat([d.aux for d in documents]), "last": torch.cat([d.last for d in documents]),
    }
    save_file(tensors, path)


def write_case(out, name, result):
    steps, coefficients, total, grads = result
    save_file({n: grads[n].contiguous() for n in ref.TENSORS}, out / f"{name}.safetensors")
    plain = [{key: value for key, value in asdict(s).items() if key != "margin"} for s in steps]
    return {"file": f"{name}.safetensors", "coefficients": coefficients, "total": total, "steps": plain}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed, (problem, shape) in enumerate(PROBLEMS.items()):
        generator = torch.Generator().manual_seed(1000 + seed)
        target = make_target(shape, generator)
        documents = make_documents(shape, generator, MASKS)
        weights = make_weights(shape, generator, target, documents)
        write_inputs(out / f"{problem}.inputs.safetensors", shape, weights, target, documents)
        draft, teacher, overlap = ref.choices(shape, weights, target, documents, K)
        save_file({"draft_ids": draft, "teacher_ids": teacher, "overlap": overlap}, out / f"{problem}.choices.safetensors")
        record = {"made_by": "make_golden.py", "torch": torch.__version__, "ttt_steps": K, "decay": 0.8, "shape": asdict(shape),
                  "inputs": f"{problem}.inputs.safetensors", "cases": []}
        for alignment, oov, normalize in CASES[problem]:
            result = ref.run(shape, weights, target, documents, K, alignment, oov, normalize)
            steps = result[0]
            print(problem, alignment, oov, normalize, f"{result[2]:.6f}", f"margin {min(s.margin for s in steps):.3g}",
                  [(s.slots, s.in_vocabulary, s.matches, s.cumulative) for s in steps])
            # Counts are compared exactly, also by an fp32 run: no choice may hang on rounding.
            assert min(s.margin for s in steps) > 1e-3, "an argmax is too close to call: change the seed"
            assert all(0 < s.cumulative <= s.matches < s.slots for s in steps) and all(s.in_vocabulary < s.slots for s in steps)
            case = write_case(out, f"{problem}.{alignment}.{oov}.{normalize}", result)
            record["cases"].append({"alignment": alignment, "oov": oov, "normalize": normalize} | case)
        (out / f"{problem}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
