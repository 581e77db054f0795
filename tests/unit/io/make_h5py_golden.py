# SPDX-License-Identifier: Apache-2.0
"""Makes h5py_golden.h5 and h5py_chunked.h5, which test_unit_contiguous_file reads. Usage: make_h5py_golden.py OUT_DIR.
The committed files were made with h5py 3.16.0 (HDF5 2.0.0), default settings."""
import sys

import h5py
import numpy as np

out = sys.argv[1]
with h5py.File(f"{out}/h5py_golden.h5", "w") as f:
    f["u8"] = np.arange(7, dtype="u1")
    f["u16"] = np.arange(6, dtype="<u2").reshape(2, 3) * 1000
    f["i32"] = np.array([-1, 2, -(2**31)], dtype="<i4")
    f["i64"] = np.array([-5, 2**40], dtype="<i8")
    f["u64"] = np.array([2**64 - 1], dtype="<u8")
    f["f32"] = np.array([1.5, -0.25], dtype="<f4")
    f["f64"] = np.array([0.1], dtype="<f8")
    f["text"] = np.array([b"ab", b"cde"], dtype="S3")
    f["record"] = np.array([(7, 1, 2)], dtype=[("xxh3", "<u8"), ("status", "<u4"), ("self", "<u4")])
    f["empty"] = np.zeros(0, dtype="<i4")
    f["empty2"] = np.zeros((0, 12), dtype="<u2")
    a = f.attrs
    a["vlen"] = "h\u00e9llo"
    a["fixed"] = np.bytes_(b"fixed")
    a["blank"] = ""
    a["blank_fixed"] = np.bytes_(b"")
    a["number"] = 42
    a["small"] = np.int32(-3)
    a["one"] = np.array([9], dtype="i4")
    a["flag"] = True
    a["eps"] = 1e-6
    a["list"] = np.array([2, 30, 58], dtype="i4")
    a["floats"] = np.array([1.0, 2.0])
with h5py.File(f"{out}/h5py_chunked.h5", "w") as f:
    f.create_dataset("x", data=np.arange(10, dtype="i4"), chunks=(5,))
with h5py.File(f"{out}/h5py_big_endian.h5", "w") as f:
    f["x"] = np.arange(3, dtype=">i4")
