# SPDX-License-Identifier: Apache-2.0
"""Command line and exit codes of aerie-prepare."""

import argparse
import datetime
import json
import os
import signal
import sys
from pathlib import Path

from . import VERSION
from .errors import DATA, IO, MISSING, USAGE, Fatal, Reason
from .inputs import Inputs
from .layouts import FORMATS
from .prepare import Options, Preparation
from .target import Target
from .writer import DatasetWriter

DESCRIPTION = """Turns conversations into token ids and loss masks for aerie (docs/reference/dataset.md).
Exit codes: 0 done, 2 usage, 65 every sample is rejected or a file is damaged, 66 a file is missing, 74 reading or writing failed.
The summary is one line of JSON on stdout; progress, warnings and rejected samples are on stderr."""


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="aerie-prepare", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("conversations", nargs="+", type=Path, metavar="CONVERSATIONS", help=".jsonl, .jsonl.gz, .json or .json.gz")
    p.add_argument("--target", required=True, type=Path, metavar="DIR", help="the target model's directory")
    p.add_argument("--out", required=True, type=Path, metavar="FILE.h5", help="the dataset file; replaced when it is there")
    p.add_argument("--chat-template", type=Path, metavar="FILE", help="a Jinja file instead of the target's own template")
    p.add_argument("--max-length", type=_natural, default=0, metavar="N", help="tokens; 0 (default): no limit")
    p.add_argument("--overlength", choices=("truncate", "skip", "fail"), default="truncate",
                   help="what happens to samples above --max-length (default: truncate)")
    p.add_argument("--limit", type=_natural, default=0, metavar="N", help="only the first N samples; 0 (default): all")
    p.add_argument("--format", choices=FORMATS, default="auto", help="record layout; auto (default) looks at each record's keys")
    p.add_argument("--date", type=datetime.datetime.fromisoformat, metavar="YYYY-MM-DD",
                   help="the date that templates see, for results that can be repeated (default: now)")
    p.add_argument("--version", action="version", version=f"aerie-prepare {VERSION}")
    return p


def prepare(args: argparse.Namespace) -> dict:
    out = args.out
    if out.is_dir():
        raise Fatal(USAGE, f"{out}: is a directory", "--out names a file")
    if not out.parent.is_dir():
        raise Fatal(MISSING, f"{out.parent}: no such directory", "create it first")
    inputs = Inputs(args.conversations)
    target = Target(args.target, args.chat_template, args.date or datetime.datetime.now())
    with DatasetWriter(out) as writer:
        run = Preparation(target, Options(args.format, args.max_length, args.overlength, args.limit), writer, inputs)
        run.run()
        rejected = {r.name: n for r, n in sorted(run.rejected.items())}
        if run.accepted == 0:
            counts = ", ".join(f"{n} {name}" for name, n in rejected.items()) or "no samples at all"
            raise Fatal(DATA, f"no usable sample in {', '.join(map(str, args.conversations))}: {counts}",
                        "nothing was written; the reasons are above")
        attributes = {
            "n_truncated": run.truncated, "max_length": args.max_length, "overlength": args.overlength,
            "vocab_size": target.vocab_size, "tokenizer_hash": target.tokenizer_hash,
            "source": ", ".join(f.name for f in args.conversations)[:4096], "producer": f"aerie-prepare {VERSION}",
        }
        writer.publish(attributes)
        return {
            "out": str(out), "samples": writer.n_samples, "accepted": run.accepted, "tokens": writer.n_tokens,
            "loss_tokens": writer.n_loss_tokens, "truncated": run.truncated, "rejected": rejected, "duplicate_ids": run.duplicates,
            "vocab_size": target.vocab_size, "tokenizer_hash": target.tokenizer_hash, "dataset_hash": writer.dataset_hash(),
        }


def _terminate(*_):
    raise KeyboardInterrupt


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, _terminate)  # spool files are removed on the way out
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    args = parser().parse_args(argv)  # exits with 2 by itself
    try:
        print(json.dumps(prepare(args), ensure_ascii=False))
        return 0
    except Fatal as e:
        print(f"error: {e}" + (f" ({e.hint})" if e.hint else ""), file=sys.stderr)
        return e.code
    except FileNotFoundError as e:
        print(f"error: {e}", file=sys.stderr)
        return MISSING
    except OSError as e:
        print(f"error: {e} (nothing was published; check space and permissions at {args.out.parent})", file=sys.stderr)
        return IO
    except KeyboardInterrupt:
        print("error: interrupted; nothing was published", file=sys.stderr)
        return 130


__all__ = ["Reason", "main"]
