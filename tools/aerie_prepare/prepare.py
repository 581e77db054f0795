# SPDX-License-Identifier: Apache-2.0
"""The run: records in, samples out, in order. Conversations are rendered one by one, tokenised in batches."""

import sys
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import xxhash

from .errors import Reason, Reject, bad
from .inputs import Inputs, Record
from .layouts import Conversation, Text, Tokens, read_layout, sample_id
from .spans import assistant_spans, mask_tokens
from .target import Target
from .writer import DatasetWriter

BATCH_SAMPLES, BATCH_CHARS = 512, 1 << 22
SHOWN_ERRORS = 10
NONE_IDS, NONE_MASK = np.empty(0, "<i4"), np.empty(0, "u1")


@dataclass
class Options:
    layout: str = "auto"
    max_length: int = 0
    overlength: str = "truncate"
    limit: int = 0


@dataclass
class Pending:
    """A sample on its way: a text with its spans, token ids, or why it is rejected."""

    record: Record
    id: str
    text: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)
    tokens: Tokens | None = None
    reject: Reject | None = None


class Preparation:
    def __init__(self, target: Target, options: Options, writer: DatasetWriter, inputs: Inputs, progress_s: float = 5.0):
        self._target, self._options, self._writer, self._inputs = target, options, writer, inputs
        self.rejected: Counter = Counter()
        self.truncated = self.duplicates = self.accepted = 0
        self._id_hashes = array("Q")  # 8 bytes a sample, all that is kept of it
        self._progress = Progress(inputs, progress_s)

    def run(self) -> None:
        batch: list[Pending] = []
        chars = taken = 0
        for record in self._inputs:
            pending = self._read(record)
            batch.append(pending)
            chars += len(pending.text)
            taken += 1
            if len(batch) >= BATCH_SAMPLES or chars >= BATCH_CHARS:
                self._flush(batch)
                batch, chars = [], 0
            if taken == self._options.limit:
                break
        self._flush(batch)
        self.duplicates = len(self._id_hashes) - len(np.unique(np.frombuffer(self._id_hashes, "<u8")))
        self._report_rest()

    def _read(self, record: Record) -> Pending:
        out = Pending(record, sample_id(record.value, f"{record.file.name}:{record.line}"))
        self._id_hashes.append(xxhash.xxh3_64_intdigest(out.id.encode("utf-8")))
        if isinstance(record.value, Reject):
            out.reject = record.value
            return out
        try:
            content = read_layout(record.value, self._options.layout)
            if isinstance(content, Tokens):
                out.tokens = content
            elif isinstance(content, Text):
                out.text, out.spans = content.text, [(0, len(content.text))]
            elif isinstance(content, Conversation) and content.messages:
                template = self._target.template(content.tools)
                out.text, out.spans = assistant_spans(template, content.messages, content.tools, self._target.markers)
            out.text.encode("utf-8")  # a template can cut a surrogate pair in two
        except Reject as e:
            out.reject, out.text = e, ""
        except UnicodeError as e:
            out.reject, out.text = bad(f"the rendered text is not valid Unicode: {e}"), ""
        record.value = None  # the parsed record is not needed any more
        return out

    def _flush(self, batch: list[Pending]) -> None:
        texts = [p for p in batch if p.text]
        encoded = {}
        if texts:
            encodings = self._target.need_tokenizer().encode_batch([p.text for p in texts], add_special_tokens=False)
            encoded = {id(p): e for p, e in zip(texts, encodings, strict=True)}
        for p in batch:
            self._finish(p, encoded.pop(id(p), None))
        self._progress.line(self._writer)

    def _finish(self, p: Pending, encoding) -> None:
        reason, note, ids, mask = Reason.NONE, "", NONE_IDS, NONE_MASK
        try:
            if p.reject is not None:
                raise p.reject
            ids, mask, note = self._checked(p, encoding)
            self.accepted += 1
            self.truncated += bool(note)
        except Reject as e:
            reason, note, ids, mask = e.reason, f"{p.record.file.name}:{p.record.line}: {e}", NONE_IDS, NONE_MASK
            self.rejected[reason] += 1
            if sum(self.rejected.values()) <= SHOWN_ERRORS:
                print(f"{p.record.file}:{p.record.line}: {reason.name}: sample {p.id}: {e}", file=sys.stderr)
        self._writer.add(p.id, p.record.line, reason, note, ids, mask)

    def _checked(self, p: Pending, encoding) -> tuple[np.ndarray, np.ndarray, str]:
        """The same checks, in the same order, as import_jsonl in src/dataset/import_line.cpp."""
        ids, mask, note = self._ids_and_mask(p, encoding)
        limit, n = self._options.max_length, len(ids)
        if n == 0:
            raise Reject(Reason.EMPTY, "no tokens")
        vocab = self._target.vocab_size or 2**31
        for at, value in ((int(f(ids)), int(ids[f(ids)])) for f in (np.argmax, np.argmin)):
            if not 0 <= value < vocab:
                raise Reject(Reason.BAD_TOKEN, f"token {at} is {value}, outside the vocabulary of {vocab}")
        if limit and n > limit:
            if self._options.overlength != "truncate":
                raise Reject(Reason.TOO_LONG, f"{n} tokens, more than max_length {limit}")
            ids, mask, note = ids[:limit], mask[:limit], f"truncated from {n} to {limit} tokens"
        if not mask.any():
            raise Reject(Reason.NO_LOSS, "no token carries loss" + (f" ({note})" if note else ""))
        return ids, mask, note

    @staticmethod
    def _ids_and_mask(p: Pending, encoding) -> tuple[np.ndarray, np.ndarray, str]:
        if p.tokens is not None:
            try:
                ids = np.array(p.tokens.ids, "<i8")
            except OverflowError:
                ids = np.array([min(v, 2**63 - 1) for v in p.tokens.ids], "<i8")  # out of every vocabulary all the same
            return ids, np.array(p.tokens.mask, "u1"), ""
        if encoding is None:
            return NONE_IDS, NONE_MASK, ""
        ids = np.array(encoding.ids, "<i8")
        mask = np.zeros(len(ids), "u1")

        def set_loss(first: int, last: int) -> None:
            mask[first:last] = 1

        if p.spans:
            mask_tokens(p.text, encoding.offsets, p.spans, set_loss)
        return ids, mask, ""

    def _report_rest(self) -> None:
        total = sum(self.rejected.values())
        if total > SHOWN_ERRORS:
            print(f"... and {total - SHOWN_ERRORS} more rejected samples; the file's notes name each one", file=sys.stderr)
        if self.duplicates:
            print(f"warning: {self.duplicates} samples repeat an id that came before; all are kept", file=sys.stderr)
        if self._target.uses_clock:
            print("warning: the chat template writes the date into the text, so another day gives other tokens (see --date)",
                  file=sys.stderr)


class Progress:
    """`12:04:07 prepare 1200 samples 40.0% 5.3k tok/s eta 1m20s`, by bytes of input, on stderr."""

    def __init__(self, inputs: Inputs, interval_s: float):
        self._inputs, self._interval_s = inputs, interval_s
        self._start = self._last = time.monotonic()

    def line(self, writer: DatasetWriter) -> None:
        now = time.monotonic()
        if now - self._last < self._interval_s:
            return
        self._last = now
        share = min(1.0, self._inputs.consumed() / max(1, self._inputs.total_bytes))
        elapsed = now - self._start
        rate = writer.n_tokens / elapsed
        rate_text = f"{rate / 1e6:.2f}M" if rate >= 1e6 else f"{rate / 1e3:.1f}k"
        left = int(elapsed * (1 - share) / share) if share > 0 else 0
        left_text = f"{left // 3600}h{left // 60 % 60:02d}m" if left >= 3600 else f"{left // 60}m{left % 60:02d}s"
        print(f"{time.strftime('%H:%M:%S')} prepare {writer.n_samples} samples {100 * share:.1f}% {rate_text} tok/s eta {left_text}",
              file=sys.stderr, flush=True)
