# SPDX-License-Identifier: Apache-2.0
"""Reads a store with h5py and xxhash alone, by docs/reference/store.md, and prints its counts as JSON. No code of aerie takes part.

    read_store.py STORE -> {"samples", "done", "failed", "pending", "torn", "bad_checksum", "tokens", "loss_tokens", "ids_sha256",
                            "twice", "rows_sha256"}

rows_sha256 is over the checksums of the samples that are done, by sample; twice counts samples that more than one row set claims.
"""
import hashlib
import json
import os
import sys

import h5py
import numpy as np
import xxhash


def state_of(record, sample):
    """'done', 'failed' or 'pending' for a valid record, else 'torn'."""
    xxh3, status, own = (int(record[name]) for name in ("xxh3", "status", "self"))
    if (xxh3, status, own) == (0, 0, 0):
        return "pending"
    packed = b"".join(int(v).to_bytes(8, "little") for v in (sample, xxh3, status))
    if own != (xxhash.xxh3_64_intdigest(packed) & 0xFFFFFFFF | 1):
        return "torn"
    return {0: "pending", 1: "done", 2: "failed"}.get(status & 0xFF, "torn")


def rows_checksum(part, begin, end):
    h = xxhash.xxh3_64()
    for name in ("aux", "last", "input_ids", "loss_mask"):
        h.update(np.ascontiguousarray(part[name][begin:end]).tobytes())
    return h.intdigest()


def open_part(path):
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_sieve_buf_size(0)  # a writer may be at work
    return h5py.File(h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl=access))


def read(store):
    with open(os.path.join(store, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    counts = dict.fromkeys(("samples", "done", "failed", "pending", "torn", "bad_checksum", "tokens", "loss_tokens", "twice"), 0)
    ids, rows = hashlib.sha256(), {}
    claimed = set()
    for entry in manifest["parts"]:
        with open_part(os.path.join(store, entry["file"])) as part:
            offsets, samples = part["row_offset"][:], part["sample_id"][:]
            for j, record in enumerate(part["state"][:]):
                begin, end = int(offsets[j]), int(offsets[j + 1])
                state = state_of(record, int(samples[j]))
                counts["twice"] += int(samples[j]) in claimed
                claimed.add(int(samples[j]))
                counts["samples"] += 1
                counts[state] += 1
                if state != "done":
                    continue
                counts["bad_checksum"] += rows_checksum(part, begin, end) != int(record["xxh3"])
                rows[int(samples[j])] = int(record["xxh3"])
                counts["tokens"] += end - begin
                counts["loss_tokens"] += int(part["loss_mask"][begin:end].sum())
                ids.update(part["input_ids"][begin:end].tobytes())
    row_text = json.dumps(sorted(rows.items())).encode()
    return counts | {"ids_sha256": ids.hexdigest(), "rows_sha256": hashlib.sha256(row_text).hexdigest()}


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1])))
