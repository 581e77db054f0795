# SPDX-License-Identifier: Apache-2.0
"""Reads .jsonl, .jsonl.gz, .json and .json.gz one record at a time. A bad line becomes a Reject in its place, so that the count of
samples never changes silently; a file whose end cannot be found (cut gzip, broken .json list) ends the command, because the number of
samples in it is unknown."""

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DATA, IO, MISSING, Fatal, bad

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n\v\f"


@dataclass
class Record:
    file: Path
    line: int  # 1-based; the element's number in a .json list
    value: Any  # parsed JSON, or a Reject


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)


def parse(raw: bytes) -> Any:
    """One JSON value, or a Reject (returned, not raised)."""
    try:
        value = DECODER.decode(raw.decode("utf-8"))
        if b"\\ud" in raw or b"\\uD" in raw:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair is not text
        return value
    except UnicodeError as e:
        return bad(f"not valid UTF-8: {e}")
    except RecursionError:
        return bad("not valid JSON: nested too deeply")
    except ValueError as e:
        return bad(f"not valid JSON: {e}")


class Inputs:
    """Iterates over all records of all files. `consumed()` of `total_bytes` (as stored on disk) have been read so far."""

    def __init__(self, files: list[Path]):
        self.files = files
        self.total_bytes = 0
        for f in files:
            if not f.is_file():
                raise Fatal(MISSING, f"{f}: no such file", "check the path")
            self.total_bytes += f.stat().st_size
        self._before = 0
        self._raw = None

    def consumed(self) -> int:
        return self._before + (self._raw.tell() if self._raw and not self._raw.closed else 0)

    def __iter__(self) -> Iterator[Record]:
        for path in self.files:
            try:
                with open(path, "rb") as self._raw:
                    plain = gzip.GzipFile(fileobj=self._raw, mode="rb") if path.suffix == ".gz" else self._raw
                    name = path.name.removesuffix(".gz")
                    yield from self._json(path, plain) if name.endswith(".json") else self._lines(path, plain, b"")
            except (EOFError, zlib.error, gzip.BadGzipFile) as e:
                raise Fatal(DATA, f"{path}: damaged gzip file: {e}", "fetch the file again") from e
            except OSError as e:
                raise Fatal(IO, f"{path}: {e}") from e
            self._before += path.stat().st_size

    @staticmethod
    def _lines(path: Path, stream, head: bytes) -> Iterator[Record]:
        line = 0
        while True:
            raw = stream.readline()
            if head:  # what was read to tell a list from lines
                raw, head = (head + raw, b"") if b"\n" not in head else (head, b"")
            if not raw:
                return
            line += 1
            if line == 1:
                raw = raw.removeprefix(BOM)
            raw = raw.strip(BLANK)
            if raw:
                yield Record(path, line, parse(raw))

    def _json(self, path: Path, stream) -> Iterator[Record]:
        """A list of records, element by element; anything else is read as lines."""
        head = b""
        while True:
            byte = stream.read(1)
            if not byte or (byte not in (b" ", b"\t", b"\r", b"\n") and not BOM.startswith((head + byte).lstrip(BLANK))):
                break
            head += byte
        if byte != b"[":
            yield from self._rest_as_lines(path, stream, head + byte)
            return
        yield from self._list(path, stream)

    def _rest_as_lines(self, path: Path, stream, head: bytes) -> Iterator[Record]:
        *whole, last = head.split(b"\n")
        skipped = len(whole)  # blank lines before the first record
        for r in self._lines(path, stream, last):
            r.line += skipped
            yield r

    @staticmethod
    def _list(path: Path, stream) -> Iterator[Record]:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        text, at, ended, number, wanted = "", 0, False, 0, 1 << 16

        def broken(why: str) -> Fatal:
            return Fatal(DATA, f"{path}: element {number + 1} of the list: {why}",
                         "a broken list hides how many samples it holds; repair it, or use JSON lines")

        def more() -> bool:
            nonlocal text, at, ended
            if ended:
                return False
            block = stream.read(wanted)
            ended = not block
            try:
                text, at = text[at:] + decode(block, final=ended), 0
            except UnicodeError as e:
                raise broken(f"not valid UTF-8: {e}") from e
            return True

        def peek() -> str:
            nonlocal at
            while True:
                while at < len(text) and text[at] in " \t\r\n":
                    at += 1
                if at < len(text):
                    return text[at]
                if not more():
                    raise broken("the file ends inside the list")

        if peek() == "]":
            return
        while True:
            peek()
            wanted = 1 << 16
            while True:
                try:
                    value, end = DECODER.raw_decode(text, at)
                    if end < len(text) or ended:
                        break
                except RecursionError as e:
                    raise broken("nested too deeply") from e
                except ValueError as e:
                    # Cut by the block's end, or broken: reading twice as much each time keeps the work linear.
                    if ended:
                        raise broken(f"not valid JSON: {e}") from e
                more()
                wanted *= 2
            at = end
            number += 1
            try:
                if "\\ud" in text or "\\uD" in text:
                    json.dumps(value, ensure_ascii=False).encode("utf-8")
            except UnicodeError as e:
                value = bad(f"not valid UTF-8: {e}")
            yield Record(path, number, value)
            separator = peek()
            at += 1
            if separator == "]":
                return
            if separator != ",":
                raise broken(f"',' or ']' expected, found {separator!r}")
