# SPDX-License-Identifier: Apache-2.0
"""Golden numbers of the draft model from SpecForge itself, and a comparison of reference.py with them.

    python make_specforge_golden.py SPECFORGE [OUT]   # SPECFORGE: a checkout at a6b6b02; OUT: data/ beside this script

SpecForge's own offline path runs on the CPU: normaliser, collator (the five documents of problem `square` padded to 14 tokens),
target head, draft model (attention backend "sdpa"), unroll, loss and step weights. Two runs:
  fp32   nothing changed but the places where it runs: Triton's interpreter in place of a GPU (triton 3.6's needs numpy below 2.4),
         torch.compile switched off.
  fp64   its fp32 upcasts (norms, softmax, teacher) widened to fp64, and its own PyTorch form of the loss kernel in place of the
         Triton one, which is fp32 by construction. This is the run that tells formulas apart from rounding.
Only numbers are kept: specforge.json, specforge.fp32.safetensors, specforge.fp64.safetensors. Nothing of SpecForge is in this repository.
"""
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # read when torch and triton are imported
os.environ["TRITON_INTERPRET"] = "1"
os.environ["SPECFORGE_DEVICE"] = "cpu"

import json
import subprocess
import types
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

import reference as ref
from make_golden import DRAFT_IDS, K, PROBLEMS

HERE = Path(__file__).parent


class Fp32ReadsAsFp64(TorchFunctionMode):
    """Inside it, a conversion to fp32 is a conversion to fp64."""

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if x is torch.float32 else x

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def import_specforge(checkout):
    # Its data module needs the package `datasets` for a type that is not used here.
    datasets = types.ModuleType("datasets")
    datasets.Dataset = object
    sys.modules["datasets"] = datasets
    sys.path.insert(0, str(checkout))


def make_strategy(shape, tensors, dtype):
    from specforge.algorithms.eagle3.model import OnlineEagle3Model
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3
    from specforge.modeling.target.target_head import TargetHead
    from specforge.training.strategies.base import Eagle3TrainStrategy
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=shape.hidden_size, intermediate_size=shape.intermediate_size, num_hidden_layers=1,
        num_attention_heads=shape.num_heads, num_key_value_heads=shape.num_kv_heads, head_dim=shape.head_dim,
        vocab_size=shape.vocab_size, rms_norm_eps=shape.rms_norm_eps, max_position_embeddings=64, hidden_act="silu", pad_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta})
    config.draft_vocab_size = shape.draft_vocab_size
    config.target_hidden_size = shape.target_hidden_size
    config.pretraining_tp = 1

    draft = LlamaForCausalLMEagle3(config, attention_backend="sdpa").to(dtype)
    state = {n: tensors[f"weights.{n}"] for n in ref.TENSORS}
    state |= {"embed_tokens.weight": tensors["target.embedding"], "d2t": tensors["d2t"], "t2d": tensors["t2d"]}
    print("load:", draft.load_state_dict({k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}))
    draft.freeze_embedding()

    head = TargetHead.__new__(TargetHead)  # its constructor reads a model directory
    torch.nn.Module.__init__(head)
    head.fc = torch.nn.Linear(shape.target_hidden_size, shape.vocab_size, bias=False, dtype=dtype)
    head.fc.weight.data.copy_(tensors["target.lm_head"])
    head.freeze_weights()
    return draft, Eagle3TrainStrategy(OnlineEagle3Model(draft, length=K, attention_backend="sdpa"), target_head=head)


def make_batch(tensors, dtype):
    from specforge.algorithms.eagle3.data import normalize_offline_sample
    from specforge.data.utils import DataCollatorWithPadding
    from specforge.runtime.contracts import TrainBatch

    rows, at = [], 0
    for S in tensors["lengths"].tolist():
        part = slice(at, at + S)
        rows.append(normalize_offline_sample({
            "input_ids": tensors["ids"][part].long(), "loss_mask": tensors["mask"][part].long(),
            "hidden_state": tensors["last"][part].to(dtype)[None], "aux_hidden_state": tensors["aux"][part].to(dtype)[None]}, 10**6))
        at += S
    batch = {k: v for k, v in DataCollatorWithPadding()(rows).items() if v is not None}
    return TrainBatch(sample_ids=[], strategy="eagle3", tensors=batch, metadata={"target_repr": "hidden_state"})


def run_specforge(shape, tensors, dtype):
    draft, strategy = make_strategy(shape, tensors, dtype)
    out = strategy.forward_loss(make_batch(tensors, dtype))
    out.loss.backward()
    grads = {n: p.grad for n, p in draft.named_parameters() if n != "embed_tokens.weight"}
    assert set(grads) == set(ref.TENSORS), set(grads) ^ set(ref.TENSORS)
    return out, grads


def documents_of(tensors):
    out, at = [], 0
    for S in tensors["lengths"].tolist():
        part = slice(at, at + S)
        out.append(ref.Document(tensors["ids"][part].long(), tensors["mask"][part].long(), tensors["aux"][part], tensors["last"][part]))
        at += S
    return out


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def main():
    checkout = Path(sys.argv[1]).resolve()
    out_dir = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "data"
    import_specforge(checkout)
    torch.set_num_threads(1)
    shape = PROBLEMS["square"]
    tensors = load_file(HERE / "data" / "square.inputs.safetensors")
    import specforge.algorithms.eagle3.model as eagle3

    results = {"fp32": run_specforge(shape, tensors, torch.float32)}
    # The mean over positions in the kernel's place; both are SpecForge's.
    import specforge.core.loss as loss_module
    eagle3.LogSoftmaxLoss = types.SimpleNamespace(apply=loss_module._compute_loss)
    torch.set_default_dtype(torch.float64)
    with Fp32ReadsAsFp64():
        results["fp64"] = run_specforge(shape, tensors, torch.float64)
    torch.set_default_dtype(torch.float32)

    # reference.py in the same terms. SpecForge divides each step's loss by batch x padded length, padding included; "all" divides by the
    # documents' own positions. Scaling by the ratio is exact, because it is the same for every step.
    documents = documents_of(tensors)
    weights = {n: tensors[f"weights.{n}"] for n in ref.TENSORS}
    target = ref.Target(tensors["target.embedding"], tensors["target.lm_head"], tensors["d2t"])
    steps, coefficients, total, grads = ref.run(shape, weights, target, documents, K, "hidden", "mask", "all")
    positions = len(documents) * max(len(d.ids) for d in documents)
    scale = sum(len(d.ids) for d in documents) / positions

    record = {"made_by": "make_specforge_golden.py", "specforge": "a6b6b0230009d15ec2a97a57384e6f53f0f96946", "torch": torch.__version__,
              "inputs": "square.inputs.safetensors", "ttt_steps": K, "decay": 0.8, "alignment": "hidden", "oov": "mask",
              "positions": positions, "coefficients": [0.8**k / positions for k in range(K)]}
    for name, (out, g) in results.items():
        m = out.metrics
        record[name] = {
            "total": float(out.loss.detach()), "step_losses": [float(x) for x in m["plosses"]],
            "correct": [float(x) for x in m["acc_corrects"]], "slots": [float(x) for x in m["acc_denoms"]],
            "acceptance_rates": [float(x) for x in m["acceptance_rates"]]}
        save_file({n: g[n].contiguous() for n in ref.TENSORS}, out_dir / f"specforge.{name}.safetensors")
        loss, expected = float(out.loss.detach()), total * scale
        print(f"{name}: total {loss:.12f}, reference {expected:.12f}, relative difference {abs(loss / expected - 1):.2e}")
        for k, s in enumerate(steps):
            print(f"  step {k}: loss {float(m['plosses'][k]):.12f} against {s.loss / positions:.12f}; correct {float(m['acc_corrects'][k])} of"
                  f" {float(m['acc_denoms'][k])} against {s.matches} of {s.slots}; acceptance {float(m['acceptance_rates'][k]):.6f}"
                  f" against {s.overlap_in_vocabulary / s.in_vocabulary:.6f} (over all slots {s.overlap / s.slots:.6f})")
        for n in ref.TENSORS:
            print(f"  {n}: relative difference of the gradient {relative(g[n], grads[n] * scale):.2e}")
    (out_dir / "specforge.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
