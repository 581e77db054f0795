# SPDX-License-Identifier: Apache-2.0
"""The tiny target is what it claims to be: a whole safetensors file, a byte alphabet without gaps, the same bytes for the same seed."""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_target  # noqa: E402


class TinyTarget(unittest.TestCase):
    def test_same_seed_same_files_and_header_covers_the_data(self):
        with tempfile.TemporaryDirectory() as tmp:
            contents = []
            for name in ("a", "b"):
                folder = os.path.join(tmp, name)
                tiny_target.write_target(folder)
                with open(os.path.join(folder, "model.safetensors"), "rb") as f:
                    contents.append(f.read())
            self.assertEqual(contents[0], contents[1])
            size = int.from_bytes(contents[0][:8], "little")
            header = json.loads(contents[0][8:8 + size])
            header.pop("__metadata__")
            end = 0
            for name, entry in header.items():
                shape, (begin, stop) = entry["shape"], entry["data_offsets"]
                elements = shape[0] * (shape[1] if len(shape) == 2 else 1)
                self.assertEqual((begin, stop), (end, end + 4 * elements), name)
                end = stop
            self.assertEqual(8 + size + end, len(contents[0]))
            self.assertEqual(len(header), 3 + 9 * tiny_target.LAYERS)

    def test_every_byte_has_a_token_of_its_own(self):
        vocab = tiny_target.tokenizer()["model"]["vocab"]
        self.assertEqual(sorted(vocab.values()), list(range(3 + 256)))
        # GPT-2's published alphabet: the space is U+0120, the newline U+010A.
        self.assertEqual(vocab["\u0120"], 3 + ord(" "))
        self.assertEqual(vocab["\u010a"], 3 + ord("\n"))
        self.assertLessEqual(len(vocab), tiny_target.VOCAB)

    def test_conversations_alternate_and_differ_in_length(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "c.jsonl.gz")
            tiny_target.write_conversations(path, 40, seed=1)
            import gzip
            with gzip.open(path, "rt", encoding="utf-8") as f:
                rows = [json.loads(line) for line in f]
        self.assertEqual(len({r["id"] for r in rows}), 40)
        self.assertTrue(all([m["role"] for m in r["messages"]] == ["user", "assistant"] * (len(r["messages"]) // 2) for r in rows))
        self.assertGreater(len({sum(len(m["content"]) for m in r["messages"]) for r in rows}), 20)


if __name__ == "__main__":
    unittest.main()
