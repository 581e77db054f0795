# SPDX-License-Identifier: Apache-2.0
"""The tool as a whole: layouts, bad input, exit codes, the file it writes, agreement with import_jsonl of the C++ side."""

import gzip
import hashlib
import json
import os
import struct
import unittest
from pathlib import Path

import support as s
import xxhash

HELLO = [s.turn("user", "q"), s.turn("assistant", "hello")]


class ToolCase(unittest.TestCase):
    def setUp(self):
        folder = s.scratch()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        self.target = s.make_target(self.path / "target", s.CHATML, s.CHATML_TOKENS)
        self.out = self.path / "out.h5"

    def lines(self, records, name="in.jsonl"):
        return s.write_lines(self.path / name, records)

    def run_on(self, *inputs, flags=(), code=0, **more):
        result = s.run_tool(list(inputs), self.target, self.out, *flags, **more)
        self.assertEqual(result.code, code, result.stderr)
        self.assertEqual([p.name for p in self.path.iterdir() if ".tmp." in p.name], [])
        return result

    def test_layouts_agree(self):
        d = self.run_on(self.lines([
            {"id": "openai", "messages": HELLO},
            {"id": "parts", "messages": [s.turn("user", [{"type": "text", "text": "q"}]), s.turn("assistant", "hello", tool_calls=None)]},
            {"id": "sharegpt", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "hello"}]},
            {"id": "specforge", "conversations": HELLO},
        ])).file
        for i in range(4):
            self.assertEqual(d.reject(i), 0, d.note(i))
            self.assertEqual((d.ids(i), d.mask(i)), (d.ids(0), d.mask(0)))
        self.assertEqual([d.id(i) for i in range(4)], ["openai", "parts", "sharegpt", "specforge"])
        self.assertEqual(sum(d.mask(0)), 2)  # "hello" is one token, its end another

    def test_text_and_tokens(self):
        d = self.run_on(self.lines([{"text": "hello"}, {"id": 4, "input_ids": [1, 2], "loss_mask": [0, 1]}])).file
        self.assertEqual(d.mask(0), [1] * len(d.ids(0)))
        self.assertEqual((d.ids(1), d.mask(1), d.id(1)), ([1, 2], [0, 1], "4"))

    def test_every_bad_record_keeps_its_place(self):
        bad = [
            "{broken", b'{"id": "\xff"}', "[1]", "7", "{}", '{"messages": 3}', '{"messages": [3]}', '{"messages": [{"role": "user"}]}',
            {"messages": [s.turn("user", [{"type": "image_url", "image_url": "x"}])]}, {"messages": [s.turn("user", 3)]},
            {"conversations": [{"from": "martian", "value": "x"}]}, {"conversations": [{"from": "human"}]}, {"text": 3},
            {"messages": HELLO, "tools": "{"}, '{"text": NaN}', '{"text": "\\ud800"}', "[" * 100000,
            {"input_ids": [1], "loss_mask": [1, 1]}, {"input_ids": [1.0], "loss_mask": [1]}, {"input_ids": [True], "loss_mask": [1]},
        ]
        r = self.run_on(self.lines([*bad, {"id": "last", "messages": HELLO}]))
        d, n = r.file, len(bad)
        self.assertEqual(len(d), n + 1)
        for i in range(n):
            self.assertEqual((d.reject(i), d.ids(i)), (5, []), bad[i])
            self.assertIn(f"in.jsonl:{i + 1}: ", d.note(i))
        self.assertEqual(d.id(n), "last")
        self.assertEqual(r.summary["rejected"], {"BAD_INPUT": n})
        self.assertEqual(sum(": BAD_INPUT: " in line for line in r.stderr.splitlines()), 10)
        self.assertIn(f"and {n - 10} more rejected", r.stderr)

    def test_other_reasons(self):
        d = self.run_on(self.lines([
            {"text": "hello"}, {"messages": []}, {"text": ""}, {"messages": [s.turn("user", "q")]},
            {"input_ids": [1, 10**6], "loss_mask": [1, 1]}, {"input_ids": [-1], "loss_mask": [1]}, {"input_ids": [2**64 - 1], "loss_mask": [1]},
        ])).file
        self.assertEqual(d.columns["reject"].tolist(), [0, 1, 1, 3, 4, 4, 4])

    def test_overlength(self):
        data = self.lines([{"text": "hello"}, {"id": "long", "messages": HELLO}, {"text": "hello" * 9}])
        whole = self.run_on(data).file.ids(1)
        r = self.run_on(data, flags=("--max-length", "6"))
        self.assertEqual(r.file.columns["reject"].tolist(), [0, 3, 0])  # truncation took all loss from the second
        self.assertIn(f"truncated from {len(whole)} to 6 tokens", r.file.note(1))
        self.assertEqual(r.file.ids(2), r.file.ids(0) * 6)
        self.assertEqual((r.summary["truncated"], r.file.attributes["n_truncated"], r.file.attributes["max_length"]), (1, 1, 6))
        for how in ("skip", "fail"):
            r = self.run_on(data, flags=("--max-length", "6", "--overlength", how))
            self.assertEqual(r.file.columns["reject"].tolist(), [0, 2, 2])
            self.assertEqual(r.file.attributes["overlength"], how)

    def test_ids_missing_and_repeated(self):
        r = self.run_on(self.lines([{"text": "a"}, "", {"text": "b", "id": None}, {"text": "c", "id": "x"}, {"text": "d", "id": "x"}]))
        self.assertEqual([r.file.id(i) for i in range(4)], ["in.jsonl:1", "in.jsonl:3", "x", "x"])
        self.assertEqual(r.file.columns["source_line"].tolist(), [1, 3, 4, 5])
        self.assertEqual(r.summary["duplicate_ids"], 1)
        self.assertIn("1 samples repeat an id", r.stderr)

    def test_containers_agree(self):
        records = [{"id": str(i), "text": f"hello {i} é世"} for i in range(300)]
        hashes = set()
        for name, raw in (("a.jsonl.gz", None), ("b.json", json.dumps(records)), ("c.json", json.dumps(records, indent=3, ensure_ascii=False)),
                          ("d.json", "\n \n" + "\n".join(map(json.dumps, records))), ("e.jsonl", "\ufeff" + "\n".join(map(json.dumps, records))),
                          ("f.json.gz", json.dumps(records)), ("g.json", "\ufeff" + json.dumps(records))):
            path = self.path / name
            if raw is None:
                self.lines(records, name)
            else:
                path.write_bytes(gzip.compress(raw.encode()) if name.endswith(".gz") else raw.encode())
            d = self.run_on(path).file
            self.assertEqual(len(d), 300)
            self.assertEqual(d.id(299), "299")
            hashes.add(d.attributes["dataset_hash"])
        self.assertEqual(len(hashes), 1)

    def test_elements_longer_than_a_block(self):
        path = self.path / "in.json"
        path.write_text(json.dumps([{"id": "a", "text": "hello" * 60000}, {"id": "b", "text": "x"}]))
        d = self.run_on(path).file
        self.assertEqual((len(d), len(d.ids(0)), d.id(1)), (2, 60000, "b"))

    def test_several_files_and_limit(self):
        a, b = self.lines([{"text": "a"}, {"text": "b"}], "a.jsonl"), self.lines([{"text": "c"}, {"text": "d"}], "b.jsonl.gz")
        self.assertEqual([self.run_on(a, b).file.id(i) for i in range(4)], ["a.jsonl:1", "a.jsonl:2", "b.jsonl.gz:1", "b.jsonl.gz:2"])
        self.assertEqual(len(self.run_on(a, b, flags=("--limit", "3")).file), 3)

    def test_given_format_is_required(self):
        d = self.run_on(self.lines([{"text": "a"}, {"messages": HELLO}]), flags=("--format", "text")).file
        self.assertEqual(d.columns["reject"].tolist(), [0, 5])

    def test_exit_codes(self):
        good = self.lines([{"text": "a"}])
        self.assertEqual(self.run_on(good, flags=("--overlength", "cut"), code=2).stdout, "")
        self.run_on(good, flags=("--max-length", "-1"), code=2)
        self.run_on(self.path / "gone.jsonl", code=66)
        self.run_on(good, flags=("--chat-template", str(self.path / "gone.jinja")), code=66)
        self.run_on(good, flags=("--target", str(self.path / "gone")), code=66)
        self.run_on(self.lines(["{", {"messages": []}], "bad.jsonl"), code=65)
        self.run_on(self.lines([], "empty.jsonl"), code=65)
        (self.path / "cut.jsonl.gz").write_bytes(gzip.compress(os.urandom(4096).hex().encode())[:-30])
        self.run_on(self.path / "cut.jsonl.gz", code=65)
        (self.path / "cut.json").write_text('[{"text": "a"}, {"te')
        self.assertIn("element 2 of the list", self.run_on(self.path / "cut.json", code=65).stderr)
        (self.path / "t.jinja").write_text("{% for %}")
        self.run_on(good, flags=("--chat-template", str(self.path / "t.jinja")), code=65)
        self.assertFalse(self.out.exists())
        (self.target / "tokenizer.json").write_text("{")
        self.run_on(good, code=65)
        (self.target / "tokenizer.json").unlink()
        self.run_on(good, code=66)
        self.assertFalse(self.out.exists())

    def test_no_template_is_needed_for_texts_only(self):
        s.make_target(self.target, None, s.CHATML_TOKENS)
        self.run_on(self.lines([{"text": "a"}]))
        self.run_on(self.lines([{"messages": HELLO}]), code=2)

    def test_a_full_disk_is_74_and_keeps_the_old_file(self):
        self.run_on(self.lines([{"text": "a"}]))
        before = self.out.read_bytes()
        import resource

        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        import signal

        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes past the limit fail with EFBIG
        try:
            data = self.lines([{"text": "hello " * 20000}])
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
            self.run_on(data, code=74)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, handler)
        self.assertEqual(self.out.read_bytes(), before)

    def test_file_layout_and_hashes(self):
        r = self.run_on(self.lines([{"id": "é", "messages": HELLO}, "{", {"text": "hello"}]), own_process=True)
        d = r.file
        self.assertTrue(d.contiguous)
        kinds = {"input_ids": "<i4", "loss_mask": "|u1", "offsets": "<i8", "reject": "|u1", "source_line": "<i8", "id_offsets": "<i8",
                 "id_bytes": "|u1", "note_offsets": "<i8", "note_bytes": "|u1"}
        self.assertEqual({k: v.dtype.str for k, v in d.columns.items()}, kinds)
        h, a = xxhash.xxh3_128(), d.attributes
        for i in range(len(d)):
            h.update(struct.pack(f"<qB{len(d.ids(i))}i", len(d.ids(i)), d.reject(i), *d.ids(i)) + bytes(d.mask(i)))
        self.assertEqual(a["dataset_hash"], "xxh3-128:" + h.hexdigest())
        raw = (self.target / "tokenizer.json").read_bytes() + b"\0" + s.CHATML.encode()
        self.assertEqual(a["tokenizer_hash"], "sha256:" + hashlib.sha256(raw).hexdigest())
        self.assertEqual((a["schema"], a["schema_version"], a["n_samples"], a["max_length"], a["overlength"], a["source"]),
                         ("aerie-dataset", 1, 3, 0, "truncate", "in.jsonl"))
        self.assertEqual((a["n_tokens"], a["n_loss_tokens"]), (len(d.columns["input_ids"]), int(d.columns["loss_mask"].sum())))
        self.assertEqual(r.summary["tokens"], a["n_tokens"])

    def test_clock_is_fixed_by_date(self):
        (self.path / "t.jinja").write_text("{{ strftime_now('%Y') }}" + s.CHATML)
        flags = ("--chat-template", str(self.path / "t.jinja"), "--date", "2020-01-31")
        r = self.run_on(self.lines([{"messages": HELLO}]), flags=flags)
        self.assertIn("writes the date", r.stderr)
        self.assertEqual(bytes(r.file.ids(0)[:0]), b"")
        from tokenizers import Tokenizer

        text = Tokenizer.from_file(str(self.target / "tokenizer.json")).decode(r.file.ids(0), skip_special_tokens=False)
        self.assertTrue(text.startswith("2020<|im_start|>"), text)

    def test_same_hash_as_import_jsonl(self):
        # The cases and the hash that tests/unit/dataset/import_test.cpp asks for.
        (self.target / "config.json").write_text('{"vocab_size": 100}')
        cases = s.ROOT / "tests" / "unit" / "dataset"
        d = self.run_on(cases / "import_cases.jsonl", flags=("--format", "tokens", "--max-length", "6")).file
        self.assertEqual(d.attributes["dataset_hash"], (cases / "import_cases.hash").read_text().strip())

    def test_results_can_be_repeated(self):
        data = self.lines([{"messages": HELLO}, "{"])
        self.run_on(data)
        first = self.out.read_bytes()
        self.run_on(data)
        self.assertEqual(self.out.read_bytes(), first)


if __name__ == "__main__":
    unittest.main()
