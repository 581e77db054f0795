#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a store of hidden states (docs/reference/store.md) with h5py and numpy alone, also while aerie-extract writes it.

    aerie_store.py STORE      counts of the samples;     aerie_store.py STORE N      one sample

    store = Store("run/store")
    sample = store[store.done()[0]]    # KeyError while it is pending or failed; with xxhash also when torn, and checksums are compared
    sample["aux"], sample["last"]      # raw bits as stored: u16 bfloat16, or u8 float8_e4m3fn with aux_scale, last_scale
    store.to_float32(sample)["aux"]    # [T, 3, H]; store.to_torch(sample): bfloat16 tensors, of a bfloat16 store exactly the bits
"""
import bisect
import json
import os
import sys

import h5py
import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None  # then checksums are not compared
REASONS = ["NONE", "EMPTY", "TOO_LONG", "NO_LOSS", "BAD_TOKEN", "BAD_INPUT", "NONFINITE", "TARGET"]
HASHED = ["aux", "last", "input_ids", "loss_mask", "aux_scale", "last_scale"]  # in the order in which xxh3 covers them


def e4m3fn_values():
    """The 256 values of float8_e4m3fn: no infinities, two NaNs."""
    code = np.arange(256)
    value = np.where(code & 120, (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7.0), (code & 7) * 2.0**-9)
    value[code & 127 == 127] = np.nan
    return np.where(code & 128, -value, value).astype("f4")


class Part:
    """One file. HDF5 tells where its datasets are; rows are read from there, so nothing is buffered and nothing stale."""

    def __init__(self, path):
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_sieve_buf_size(0)
        with h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, fapl=access)) as f:
            self.at = {n: (d.id.get_offset() or 0, d.dtype, d.shape[1:]) for n, d in f.items()}  # an empty one has no offset
            self.row_offset = f["row_offset"][:]
        self.fd = os.open(path, os.O_RDONLY)

    def __del__(self):
        os.close(self.fd)

    def rows(self, name, begin, end):
        offset, dtype, shape = self.at[name]
        out = np.empty((end - begin, *shape), dtype)
        view, offset = memoryview(out.reshape(-1).view("u1")), offset + begin * (out[:1].nbytes or 1)
        while view:
            n = os.preadv(self.fd, [view[: 1 << 30]], offset)
            if n == 0:
                raise EOFError(f"{name}: the file ends at {offset}")
            view, offset = view[n:], offset + n
        return out


class Store:
    def __init__(self, root):
        self.root, self.parts, self.pid = os.fspath(root), {}, None
        with open(os.path.join(self.root, "manifest.json"), encoding="utf-8") as f:
            self.manifest = json.load(f)
        if (self.manifest["schema"], self.manifest["schema_version"]) != ("aerie-store", 1):
            raise ValueError(f"{root}: schema {self.manifest['schema']} {self.manifest['schema_version']} is not known here")
        self.first = [p["first"] for p in self.manifest["parts"]]
        self.dtype = self.manifest["logical_dtype"]

    def __len__(self):
        return self.manifest["n_samples"]

    def part(self, k):
        if self.pid != os.getpid():  # descriptors are opened by the process that uses them
            self.pid, self.parts = os.getpid(), {}
        if k not in self.parts:
            self.parts[k] = Part(os.path.join(self.root, self.manifest["parts"][k]["file"]))
        return self.parts[k]

    def states(self):
        """(kind, reason) of every sample as it is now: 0 pending, 1 done, 2 failed."""
        records = np.concatenate([self.part(k).rows("state", 0, p["n"]) for k, p in enumerate(self.manifest["parts"])])
        status = np.array([self.status(i, r) for i, r in enumerate(records)], "u4") if xxhash else records["status"]
        return status & 0xFF, status >> 8

    def status(self, i, record):
        """The record's status, pending when the record is torn."""
        xxh3, status, own = (int(v) for v in record)
        torn = xxhash and own != xxhash.xxh3_64_intdigest(np.array([i, xxh3, status], "<u8").tobytes()) & 0xFFFFFFFF | 1
        return 0 if torn else status

    def done(self):
        return np.flatnonzero(self.states()[0] == 1).tolist()

    def counts(self):
        kind, reason = self.states()
        return {"samples": len(self), **{n: int((kind == k).sum()) for k, n in enumerate(("pending", "done", "failed"))},
                "by_reason": {REASONS[r]: int(((kind == 2) & (reason == r)).sum()) for r in sorted({*reason[kind == 2]})}}

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        k = bisect.bisect_right(self.first, i) - 1
        part, j = self.part(k), i - self.first[k]
        record = part.rows("state", j, j + 1)[0]
        status = self.status(i, record)
        if status & 0xFF != 1:
            raise KeyError(f"sample {i} is " + (f"failed ({REASONS[status >> 8]})" if status & 0xFF == 2 else "pending"))
        sample = {n: part.rows(n, int(part.row_offset[j]), int(part.row_offset[j + 1])) for n in HASHED if n in part.at}
        if xxhash:
            h = xxhash.xxh3_64()
            for rows in sample.values():
                h.update(rows.reshape(-1).view("u1"))
            if h.intdigest() != int(record["xxh3"]):
                raise ValueError(f"sample {i}: its bytes do not hash to {int(record['xxh3']):016x}: run aerie verify")
        return sample

    def to_float32(self, sample):
        """{"aux": [T, 3, H], "last": [T, H]} in float32."""
        tokens = len(sample["input_ids"])
        shapes = {"aux": (tokens, 3, self.manifest["hidden_size"]), "last": (tokens, self.manifest["hidden_size"])}
        if self.dtype == "bfloat16":
            return {n: (sample[n].astype("u4") << 16).view("f4").reshape(s) for n, s in shapes.items()}
        return {n: e4m3fn_values()[sample[n]].reshape(s) * sample[n + "_scale"][..., None] for n, s in shapes.items()}

    def to_torch(self, sample):
        import torch
        states = {n: torch.from_numpy(v).to(torch.bfloat16) for n, v in self.to_float32(sample).items()}
        return states | {n: torch.from_numpy(sample[n]) for n in ("input_ids", "loss_mask")}


def main(args):
    if len(args) not in (1, 2) or args[0].startswith("-"):
        return print(__doc__) or 2
    try:
        store = Store(args[0])
        if len(args) == 1:
            return print(json.dumps(store.counts() | {"dtype": store.dtype, "hidden_size": store.manifest["hidden_size"]}))
        sample = store[int(args[1])]
        for name, rows in (sample | store.to_float32(sample)).items():
            print(f"{name:10} {rows.dtype} {list(rows.shape)}:", np.array2string(rows, threshold=40, precision=4).replace("\n", ""))
    except (FileNotFoundError, KeyError, ValueError, IndexError) as e:
        print(f"error: {e.args[0] if isinstance(e, KeyError) else e}", file=sys.stderr)
        return 66 if isinstance(e, FileNotFoundError) else 65


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
