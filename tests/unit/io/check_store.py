# SPDX-License-Identifier: Apache-2.0
"""An independent reader: opens a store with h5py, recomputes `xxh3` and `self` of every record, and the hash of the metadata.
Usage: check_store.py STORE. Needs h5py, numpy, xxhash. Exit code 0: everything agrees."""
import json
import os
import struct
import sys

import h5py
import xxhash

root = sys.argv[1]
with open(f"{root}/manifest.json") as f:
    manifest = json.load(f)
bad, counts = [], {0: 0, 1: 0, 2: 0}


def expect(ok, what):
    if not ok:
        bad.append(what)


for i, part in enumerate(manifest["parts"]):
    path = f"{root}/{part['file']}"
    holes = []
    with h5py.File(path, "r") as f:
        expect(f.attrs["part_index"] == i and f.attrs["store_uuid"].decode() == manifest["store_uuid"], f"{path}: identity")
        expect(list(f.attrs["aux_layer_ids"]) == manifest["aux_layer_ids"], f"{path}: aux_layer_ids")
        expect(f["aux"].attrs["logical_dtype"].decode() == manifest["logical_dtype"], f"{path}: logical_dtype")
        rows, ids, state = f["row_offset"][:], f["sample_id"][:], f["state"][:]
        fp8 = manifest["logical_dtype"] == "float8_e4m3fn"
        data = ("aux", "last", "input_ids", "loss_mask") + (("aux_scale", "last_scale") if fp8 else ())
        expect(set(f) == {*data, "state", "row_offset", "sample_id"}, f"{path}: datasets")
        for name in (*data, "state"):
            d = f[name]
            expect(d.chunks is None, f"{path}: {name} is chunked")
            if d.size:
                expect(d.id.get_offset() % 4096 == 0, f"{path}: {name} is not aligned")
                holes.append((d.id.get_offset(), d.size * d.dtype.itemsize))
        for j, (xxh3, status, own) in enumerate(state.tolist()):
            kind = status & 0xFF
            counts[kind] += 1
            if kind == 0:
                expect((xxh3, status, own) == (0, 0, 0), f"{path}: record {j} is torn")
                continue
            words = struct.pack("<QQQ", int(ids[j]), xxh3, status)
            expect(own == (xxhash.xxh3_64_intdigest(words) & 0xFFFFFFFF) | 1, f"{path}: self of record {j}")
            if kind == 1:
                h = xxhash.xxh3_64()
                for name in data:
                    h.update(f[name][rows[j]:rows[j + 1]].tobytes())
                expect(h.intdigest() == xxh3, f"{path}: xxh3 of sample {ids[j]}")
            else:
                expect(xxh3 == 0, f"{path}: failed sample {ids[j]} has a checksum")
    expect(os.path.getsize(path) == part["bytes"], f"{path}: size")
    with open(path, "rb") as f:
        content, at, h = f.read(), 0, xxhash.xxh3_128()
    for offset, size in sorted(holes):
        h.update(content[at:offset])
        at = offset + size
    h.update(content[at:])
    expect("xxh3-128:" + h.hexdigest() == part["meta_xxh3"], f"{path}: meta_xxh3")
body = {k: v for k, v in manifest.items() if k != "manifest_xxh3"}
text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
expect("xxh3-128:" + xxhash.xxh3_128_hexdigest(text.encode()) == manifest["manifest_xxh3"], "manifest_xxh3")
print(f"{counts[1]} done, {counts[2]} failed, {counts[0]} pending; {len(bad)} differences")
for line in bad:
    print(line)
sys.exit(1 if bad else 0)
