# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers and templates made for the tests, and a way to run the tool as a user does."""

import contextlib
import gzip
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "aerie-prepare"
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

CHATML_TOKENS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# Drops the thinking of all turns but those after the last user message.
QWEN = """{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- set content = m.content %}
{%- if '</think>' in content and loop.index0 < ns.last %}{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{{- '<|im_start|>assistant\n' + content }}
{%- for call in m.tool_calls or [] %}{{- '\n<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>' + m.content + '</tool_response><|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA3_TOKENS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
LLAMA3 = ("{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim "
          "+ '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
# A token of its own at the conversation's end when no answer is asked for.
PHI3_TOKENS = ["<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]
PHI3 = ("{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}")
# Opens the thinking in the prompt and never shows it afterwards.
R1_TOKENS = ["<|User|>", "<|Assistant|>", "<|eos|>", "<think>", "</think>"]
R1 = ("{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}{% else %}"
      "{{ '<|Assistant|>' + m['content'].split('</think>')[-1] + '<|eos|>' }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}")
# No generation prompt at all; refuses system messages and roles that do not alternate.
MISTRAL_TOKENS = ["<s>", "</s>", "[INST]", "[/INST]"]
MISTRAL = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
           "{% elif (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
           "{% elif m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token }}"
           "{% endif %}{% endfor %}")
# Another end token inside a conversation than at its end; needs both renderings.
HARMONY_TOKENS = ["<|start|>", "<|message|>", "<|end|>", "<|return|>"]
HARMONY = ("{% for m in messages %}{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] }}"
           "{% if m['role'] == 'assistant' and loop.last and not add_generation_prompt %}{{ '<|return|>' }}{% else %}{{ '<|end|>' }}{% endif %}"
           "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}")
BLOCKS = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|im_end|>\n' }}"
          "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# The header is written whether asked for or not: nothing tells prompt from answer but the content's place.
NO_PROMPT = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"


def make_target(folder: Path, template: str | list | None, special: list[str], bos: str | None = None, eos: str | None = None,
                trim_offsets: bool = True, rstrip: str = "") -> Path:
    """A byte-level BPE tokenizer with a handful of merges (one of them over a line's end), special tokens and a template."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("\u010a", "\u010a"), ("\u0120", "a"), (".", "\u010a")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False, rstrip=t == rstrip) for t in special])
    tok.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if template is not None:
        config["chat_template"] = template
    config |= {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


class Result:
    def __init__(self, process, out: Path):
        self.code, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr
        self.summary = json.loads(process.stdout) if process.returncode == 0 else None
        self.file = Dataset(out) if process.returncode == 0 else None


class Dataset:
    """Reads a dataset file by its documentation alone."""

    def __init__(self, path: Path):
        with h5py.File(path) as h5:
            self.columns = {name: h5[name][:] for name in h5}
            self.contiguous = all(h5[name].chunks is None for name in h5)
            self.attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in h5.attrs.items()}

    def __len__(self):
        return len(self.columns["reject"])

    def _slice(self, data: str, offsets: str, i: int) -> np.ndarray:
        at = self.columns[offsets]
        return self.columns[data][at[i]:at[i + 1]]

    def ids(self, i: int) -> list[int]:
        return self._slice("input_ids", "offsets", i).tolist()

    def mask(self, i: int) -> list[int]:
        return self._slice("loss_mask", "offsets", i).tolist()

    def id(self, i: int) -> str:
        return self._slice("id_bytes", "id_offsets", i).tobytes().decode()

    def note(self, i: int) -> str:
        return self._slice("note_bytes", "note_offsets", i).tobytes().decode()

    def reject(self, i: int) -> int:
        return int(self.columns["reject"][i])


def write_lines(path: Path, records: list) -> Path:
    """Records as JSON lines; a str or bytes record is written as it is."""
    raw = b"".join((r if isinstance(r, bytes) else (r if isinstance(r, str) else json.dumps(r, ensure_ascii=False)).encode()) + b"\n"
                   for r in records)
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return path


def run_tool(inputs: list[Path], target: Path, out: Path, *flags: str, own_process: bool = False) -> Result:
    argv = [*map(str, inputs), "--target", str(target), "--out", str(out), *flags]
    if own_process:
        return Result(subprocess.run([sys.executable, TOOL, *argv], text=True, capture_output=True, timeout=120, check=False), out)
    from aerie_prepare.cli import main

    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = main(argv)
        except SystemExit as e:  # how argparse ends
            code = e.code
    return Result(subprocess.CompletedProcess(argv, code, stdout.getvalue(), stderr.getvalue()), out)


def turn(role: str, content, **more) -> dict:
    return {"role": role, "content": content, **more}


def scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="aerie-prepare-test-")
