#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agreement with the safetensors package: it writes, aerie copies, it reads; names, types, shapes, values and metadata must survive.

Usage: check_safetensors.py SAFETENSORS_ECHO
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import safetensors
import safetensors.numpy

NUMPY = ["bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64"]
OTHERS = {"BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}  # numpy has no such types
SHAPES = [(), (3,), (2, 0, 5), (2, 3, 4)]
METADATA = {"format": "pt", "note": "quote \" and \u00fc"}


def pack(entries):
    """A file with types that numpy lacks, put together by hand."""
    header, data = {}, b""
    for name, dtype, shape, content in entries:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def copy(echo, source, target):
    """The copy as the package sees it, and its bytes."""
    subprocess.run([echo, source, target], check=True, stdout=subprocess.DEVNULL)
    with open(target, "rb") as f:
        data = f.read()
    assert (8 + struct.unpack("<Q", data[:8])[0]) % 64 == 0
    return dict(safetensors.deserialize(data))


def main():
    arrays = {}
    for i, dtype in enumerate(NUMPY):
        for k, shape in enumerate(SHAPES):
            values = numpy.arange(numpy.prod(shape, dtype=int), dtype=numpy.int64) * 3 + i
            arrays[f"{dtype}.{k}.\u00e9"] = (values % 2 if dtype == "bool" else values).astype(dtype).reshape(shape)
    others = []
    for dtype, size in OTHERS.items():
        for k, shape in enumerate(SHAPES):
            count = int(numpy.prod(shape, dtype=int)) * size
            others.append((f"{dtype}.{k}", dtype, shape, bytes((7 * size + j) % 120 for j in range(count))))

    with tempfile.TemporaryDirectory() as tmp:
        source, target = os.path.join(tmp, "source"), os.path.join(tmp, "target")
        safetensors.numpy.save_file(arrays, source, METADATA)
        copy(sys.argv[1], source, target)
        back = safetensors.numpy.load_file(target)
        assert back.keys() == arrays.keys(), back.keys() ^ arrays.keys()
        for name, a in arrays.items():
            assert back[name].dtype == a.dtype and back[name].shape == a.shape and (back[name] == a).all(), name
        with safetensors.safe_open(target, framework="numpy") as f:
            assert f.metadata() == METADATA, f.metadata()

        with open(source, "wb") as f:
            f.write(pack(others))
        back = copy(sys.argv[1], source, target)
        for name, dtype, shape, content in others:
            t = back[name]
            assert t["dtype"] == dtype and tuple(t["shape"]) == shape and bytes(t["data"]) == content, name
    print(f"{len(arrays) + len(others)} tensors agree, safetensors {safetensors.__version__}")


main()
