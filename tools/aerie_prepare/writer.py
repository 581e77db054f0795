# SPDX-License-Identifier: Apache-2.0
"""The dataset file, as include/aerie/dataset/dataset.hpp describes it. Samples are spooled to raw files beside the output, because a
contiguous dataset needs its size before its first byte; memory use does not depend on the number of samples."""

import contextlib
import os
import struct
from pathlib import Path

import h5py
import numpy as np
import xxhash

from .errors import Reason

BLOCK = 1 << 22
COLUMNS = {  # name: element type in the file
    "input_ids": "<i4", "loss_mask": "u1", "offsets": "<i8", "reject": "u1", "source_line": "<i8",
    "id_offsets": "<i8", "id_bytes": "u1", "note_offsets": "<i8", "note_bytes": "u1",
}


class DatasetWriter:
    """Use as a context manager; nothing is left behind unless publish() returned."""

    def __init__(self, out: Path):
        self._out = out
        self._tmp = out.with_name(f"{out.name}.tmp.{os.getpid()}")
        self._spool_paths = {name: self._tmp.with_name(f"{self._tmp.name}.{name}") for name in COLUMNS}
        self._spools: dict = {}
        self._hash = xxhash.xxh3_128()
        self.n_samples = self.n_tokens = self.n_loss_tokens = 0
        self._id_end = self._note_end = 0

    def __enter__(self):
        try:
            for name, path in self._spool_paths.items():
                self._spools[name] = open(path, "wb", buffering=1 << 18)
            for name in ("offsets", "id_offsets", "note_offsets"):
                self._spools[name].write(struct.pack("<q", 0))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for f in self._spools.values():
            with contextlib.suppress(OSError):
                f.close()
        for path in (*self._spool_paths.values(), self._tmp):
            path.unlink(missing_ok=True)

    def add(self, sample_id: str, line: int, reason: Reason, note: str, ids: np.ndarray, mask: np.ndarray) -> None:
        """A rejected sample comes with empty arrays."""
        id_bytes, note_bytes = sample_id.encode("utf-8"), note.encode("utf-8", "replace")
        ids_raw, mask_raw = ids.astype("<i4", copy=False).tobytes(), mask.astype("u1", copy=False).tobytes()
        self._hash.update(struct.pack("<qB", len(ids), reason) + ids_raw + mask_raw)
        self.n_samples += 1
        self.n_tokens += len(ids)
        self.n_loss_tokens += int(mask.sum(dtype=np.int64))
        self._id_end += len(id_bytes)
        self._note_end += len(note_bytes)
        for name, raw in (
            ("input_ids", ids_raw), ("loss_mask", mask_raw), ("offsets", struct.pack("<q", self.n_tokens)),
            ("reject", bytes([reason])), ("source_line", struct.pack("<q", line)),
            ("id_offsets", struct.pack("<q", self._id_end)), ("id_bytes", id_bytes),
            ("note_offsets", struct.pack("<q", self._note_end)), ("note_bytes", note_bytes),
        ):
            self._spools[name].write(raw)

    def dataset_hash(self) -> str:
        return "xxh3-128:" + self._hash.hexdigest()

    def publish(self, attributes: dict) -> None:
        """Writes, syncs and renames. `attributes`: int or str values beyond those that this class knows."""
        for f in self._spools.values():
            f.close()
        try:
            self._write_hdf5(attributes)
        except RuntimeError as e:  # how h5py reports a full disk on closing
            raise OSError(f"{self._tmp}: {e}") from e
        with open(self._tmp, "rb+") as f:
            os.fsync(f.fileno())
        os.rename(self._tmp, self._out)
        directory = os.open(self._out.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _write_hdf5(self, attributes: dict) -> None:
        with h5py.File(self._tmp, "w") as h5:
            for name, dtype in COLUMNS.items():
                self._copy(h5, name, np.dtype(dtype))
            known = {
                "schema": "aerie-dataset", "schema_version": 1, "n_samples": self.n_samples, "n_tokens": self.n_tokens,
                "n_loss_tokens": self.n_loss_tokens, "dataset_hash": self.dataset_hash(),
            }
            for key, value in (known | attributes).items():
                if isinstance(value, int):
                    h5.attrs.create(key, value, dtype="<i8")
                else:
                    raw = value.encode("utf-8", "replace") or b"\0"  # a string type of length 0 does not exist
                    h5.attrs.create(key, np.array(raw, dtype=h5py.string_dtype("utf-8", len(raw))))

    def _copy(self, h5, name: str, dtype: np.dtype) -> None:
        path = self._spool_paths[name]
        n = path.stat().st_size // dtype.itemsize
        data = h5.create_dataset(name, shape=(n,), dtype=dtype)  # no chunks: contiguous
        with open(path, "rb") as f:
            for first in range(0, n, BLOCK):
                block = np.fromfile(f, dtype=dtype, count=min(BLOCK, n - first))
                if len(block) != min(BLOCK, n - first):
                    raise OSError(f"{path}: cut short")
                data[first:first + len(block)] = block
        path.unlink()  # at most one copy of the data beside the result
