# SPDX-License-Identifier: Apache-2.0
"""tools.store_reader: tools/aerie_store.py against stores that the C++ code writes, while it writes them too.

    store_reader_test.py --source . --program build/cpu/tests/tools/store_maker
"""
import argparse
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

ARGS = None


def load_reader():
    spec = importlib.util.spec_from_file_location("aerie_store", os.path.join(ARGS.source, "tools", "aerie_store.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(store, *words):
    return subprocess.Popen([ARGS.program, store, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def expected(sample, tokens, hidden):
    """What store_maker writes, by its description: one linear congruential sequence a sample."""
    # x[n] = a x[n-1] + c, in 32 bits, is x[n] = a^n x[0] + c (1 + a + ... + a^(n-1))
    powers = np.cumprod(np.full(tokens * (4 * hidden + 2), 1664525, "u4"), dtype="u4")
    sums = np.cumsum(np.concatenate([np.ones(1, "u4"), powers[:-1]]), dtype="u4")
    x = powers * np.uint32((sample * 2654435761 + 12345) & 0xFFFFFFFF) + sums * np.uint32(1013904223)
    states, ids, mask = np.split(x, [4 * hidden * tokens, 4 * hidden * tokens + tokens])
    bits = ((states >> 16) & 0xBFFF).astype("u2")
    return {"aux": bits[: 3 * hidden * tokens].reshape(tokens, 3 * hidden), "last": bits[3 * hidden * tokens:].reshape(tokens, hidden),
            "input_ids": ((ids >> 8) % 1000).astype("i4"), "loss_mask": (mask >> 31).astype("u1")}


def command(*args):
    return subprocess.run([sys.executable, os.path.join(ARGS.source, "tools", "aerie_store.py"), *args], capture_output=True, text=True)


class FinishedStore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "store")
        made = make(cls.path)
        made.communicate()
        assert made.returncode == 0
        cls.reader = load_reader()
        cls.store = cls.reader.Store(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_sample_bit_by_bit(self):
        self.assertEqual(len(self.store), 96)
        self.assertEqual(self.store.counts(), {"samples": 96, "pending": 0, "done": 94, "failed": 2, "by_reason": {"TOO_LONG": 1, "NONFINITE": 1}})
        done = self.store.done()
        self.assertEqual(done, [i for i in range(96) if i not in (13, 40)])
        for i in (0, 1, 12, 14, 95):
            tokens = 16 + i * 131 % 251
            want = expected(i, tokens, 256)
            got = self.store[i]
            self.assertEqual(list(got), list(want))
            for name, rows in want.items():
                self.assertEqual(got[name].dtype, rows.dtype)
                self.assertTrue(np.array_equal(got[name], rows), f"sample {i}: {name}")
            values = self.store.to_float32(got)
            self.assertEqual(values["aux"].shape, (tokens, 3, 256))
            again = struct.unpack("<f", struct.pack("<I", int(want["aux"][3, 300]) << 16))[0]
            self.assertEqual(values["aux"][3, 1, 44], np.float32(again))

    def test_what_is_not_done_is_refused(self):
        for i, why in ((13, "failed (TOO_LONG)"), (40, "failed (NONFINITE)")):
            with self.assertRaisesRegex(KeyError, why.replace("(", r"\(").replace(")", r"\)")):
                self.store[i]
        for i in (-1, 96):
            with self.assertRaises(IndexError):
                self.store[i]

    def test_damage_is_found(self):
        if self.reader.xxhash is None:
            self.fail("xxhash is needed for this test")
        part = os.path.join(self.path, self.store.manifest["parts"][0]["file"])
        with h5py.File(part, "r") as f:
            places = {n: f[n].id.get_offset() for n in ("aux", "last", "input_ids", "loss_mask", "state")}
        for name, offset in places.items():
            with open(part, "r+b") as f:
                f.seek(offset)
                byte = f.read(1)
                f.seek(offset)
                f.write(bytes([byte[0] ^ 1]))
            with self.assertRaises(KeyError if name == "state" else ValueError, msg=name):
                self.reader.Store(self.path)[0]
            with open(part, "r+b") as f:
                f.seek(offset)
                f.write(byte)
        self.reader.Store(self.path)[0]

    def test_command_line(self):
        counts = command(self.path)
        self.assertEqual(counts.returncode, 0, counts.stderr)
        self.assertEqual(json.loads(counts.stdout)["done"], 94)
        one = command(self.path, "2")
        self.assertEqual(one.returncode, 0, one.stderr)
        self.assertIn("aux        float32 [27, 3, 256]:", one.stdout)
        for args, code in ((("/nowhere",), 66), ((self.path, "13"), 65), ((self.path, "96"), 65), ((), 2)):
            self.assertEqual(command(*args).returncode, code, args)

    def test_works_in_a_forked_process(self):
        self.store[0]
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(self.store[1]["aux"], expected(1, 147, 256)["aux"]) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def torch_tensors(self):  # a test of its own, by --torch: torch is optional
        import torch
        tensors = self.store.to_torch(self.store[0])
        self.assertEqual(tensors["aux"].dtype, torch.bfloat16)
        self.assertTrue(np.array_equal(tensors["aux"].view(torch.int16).numpy().view("u2").reshape(16, -1), expected(0, 16, 256)["aux"]))


class Float8(unittest.TestCase):
    def test_all_codes(self):
        values = load_reader().e4m3fn_values()
        for code in range(256):
            sign, exponent, mantissa = (-1 if code & 128 else 1), code >> 3 & 15, code & 7
            if exponent == 15 and mantissa == 7:
                self.assertTrue(np.isnan(values[code]))
                continue
            want = sign * (mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))
            self.assertEqual(values[code], want)
            self.assertEqual(np.signbit(values[code]), code >= 128)
        self.assertEqual((values[0x7E], values[0x08], values[0x01], values[0x38]), (448, 2**-6, 2**-9, 1))


    def test_a_store_made_by_hand(self):
        """Two samples of 2 and 3 tokens, H = 4, as docs/reference/store.md describes an fp8 part; the first is pending."""
        import xxhash
        random = np.random.default_rng(1)
        rows = {"aux": random.integers(0, 0x7F, (5, 12), "u1"), "last": random.integers(0x80, 0xFF, (5, 4), "u1"),
                "input_ids": np.arange(5, dtype="i4"), "loss_mask": np.array([0, 1, 0, 1, 1], "u1"),
                "aux_scale": random.random((5, 3), "f4"), "last_scale": random.random(5, "f4")}
        digest = xxhash.xxh3_64_intdigest(b"".join(v[2:].tobytes() for v in rows.values()))
        own = xxhash.xxh3_64_intdigest(struct.pack("<QQQ", 1, digest, 1)) & 0xFFFFFFFF | 1
        state = np.array([(0, 0, 0), (digest, 1, own)], [("xxh3", "<u8"), ("status", "<u4"), ("self", "<u4")])
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "parts"))
            with h5py.File(os.path.join(folder, "parts", "part-00000.h5"), "w") as f:
                for name, value in (rows | {"state": state, "row_offset": np.array([0, 2, 5]), "sample_id": np.array([0, 1])}).items():
                    f[name] = value
            with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as f:
                json.dump({"schema": "aerie-store", "schema_version": 1, "n_samples": 2, "hidden_size": 4, "logical_dtype": "float8_e4m3fn",
                           "parts": [{"file": "parts/part-00000.h5", "first": 0, "n": 2}]}, f)
            store = load_reader().Store(folder)
            self.assertEqual(store.done(), [1])
            values = store.to_float32(store[1])
            self.assertEqual((values["aux"].shape, values["last"].shape), ((3, 3, 4), (3, 4)))

            def value(code, scale):
                exponent, mantissa = code >> 3 & 15, code & 7
                size = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
                return np.float32(-size if code & 128 else size) * scale

            for t in range(3):
                for k in range(12):
                    self.assertEqual(values["aux"][t, k // 4, k % 4], value(int(rows["aux"][t + 2, k]), rows["aux_scale"][t + 2, k // 4]))
                for k in range(4):
                    self.assertEqual(values["last"][t, k], value(int(rows["last"][t + 2, k]), rows["last_scale"][t + 2]))
            with h5py.File(os.path.join(folder, "parts", "part-00000.h5"), "r+") as f:
                f["last_scale"][4] *= 2
            with self.assertRaises(ValueError):
                store[1]


class Fp8Store(unittest.TestCase):
    def test_a_store_that_the_program_made(self):
        """Half a unit of a code is 1/16 of the value, and scale / 1024 below the smallest normal code."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            made = make(path, "--fp8")
            made.communicate()
            self.assertEqual(made.returncode, 0)
            store = load_reader().Store(path)
            self.assertEqual(store.counts()["done"], 94)
            for i in (0, 1, 14, 95):
                tokens = 16 + i * 131 % 251
                want, got = expected(i, tokens, 256), store[i]
                self.assertTrue(np.array_equal(got["input_ids"], want["input_ids"]) and np.array_equal(got["loss_mask"], want["loss_mask"]))
                values = store.to_float32(got)
                for name, layers in (("aux", 3), ("last", 1)):
                    x = (want[name].astype("u4") << 16).view("f4").reshape(tokens, layers, 256).astype("f8")
                    scale = np.abs(x).max(-1, keepdims=True) / 448
                    self.assertTrue(np.allclose(got[name + "_scale"].reshape(tokens, layers, 1), scale, rtol=1e-6, atol=0))
                    error = np.abs(values[name].reshape(x.shape) - x)
                    self.assertTrue((error <= np.maximum(np.abs(x) / 16, scale / 1024) * (1 + 1e-6)).all(), f"sample {i}: {name}")
                    self.assertGreater(error.max(), 0)


class WhileAWriterRuns(unittest.TestCase):
    def test_state_and_finished_samples(self):
        """The writer tells what is durable and stops when it is three groups ahead of the reader; up to there both run at once."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            writer = make(path, "--step", "7")
            self.addCleanup(writer.kill)
            self.assertEqual(writer.stdout.readline(), "created\n")
            store = load_reader().Store(path)
            self.assertEqual(store.counts()["pending"], 95)
            writer.stdin.write("go\n" * 3)  # it writes some groups ahead of the reader
            writer.stdin.flush()
            kept = [h5py.File(os.path.join(path, p["file"]), "r") for p in store.manifest["parts"]]  # plain h5py has them open all along
            looks, seen, durable, sent = 0, set(), 0, 3
            while True:
                done = set(store.done())
                self.assertTrue(seen <= done, "a sample that was done is not any more")
                for i in sorted(done - seen) + sorted(seen)[:2]:
                    got, want = store[i], expected(i, 16 + i * 131 % 251, 256)
                    self.assertTrue(all(np.array_equal(got[n], want[n]) for n in want), f"sample {i} read while others are written")
                    part = next(k for k, p in enumerate(store.manifest["parts"]) if p["first"] <= i < p["first"] + p["n"])
                    with h5py.File(os.path.join(path, store.manifest["parts"][part]["file"]), "r") as f:  # default settings, opened anew
                        self.assertEqual(f["state"][i - store.first[part]]["status"], 1)
                if 7 * (looks + 5) < 95:  # the writer cannot have come that far
                    with self.assertRaisesRegex(KeyError, "95 is pending"):
                        store[95]
                seen, looks = done, looks + 1
                line = writer.stdout.readline()
                if not line:
                    break
                durable = int(line)
                self.assertGreaterEqual(len(store.done()), durable, "the writer reported more than a reader sees")
                if sent < 14:  # groups of 7 samples, 95 in all
                    writer.stdin.write("go\n")
                    writer.stdin.flush()
                    sent += 1
            self.assertEqual(writer.wait(), 0)
            self.assertEqual((durable, len(store.done())), (94, 94))
            self.assertGreater(looks, 8)
            for f in kept:
                f.close()
            writer.stdin.close()
            writer.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--torch", action="store_true", help="test to_torch alone")
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest, *(["FinishedStore.torch_tensors"] if ARGS.torch else [])])
