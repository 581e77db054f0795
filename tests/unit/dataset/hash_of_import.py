# SPDX-License-Identifier: Apache-2.0
"""Makes import_cases.hash: dataset_hash of import_cases.jsonl (max_length 6, vocabulary 100), from the samples that should come out,
written down by hand. Needs xxhash (made with 3.x). Run in this folder: python3 hash_of_import.py > import_cases.hash"""

import struct

import xxhash

EMPTY, NO_LOSS, BAD_TOKEN, BAD_INPUT = 1, 3, 4, 5
SAMPLES = [
    ([1, 2, 3, 99], [0, 0, 1, 1]), ([5, 6], [0, 1]), ([5], [1]), ([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 0, 0]),
    NO_LOSS, NO_LOSS, EMPTY, BAD_TOKEN, BAD_TOKEN, BAD_TOKEN, *[BAD_INPUT] * 9, ([42], [1]),
]
h = xxhash.xxh3_128()
for s in SAMPLES:
    ids, mask, reject = ([], [], s) if isinstance(s, int) else (*s, 0)
    h.update(struct.pack(f"<qB{len(ids)}i{len(mask)}B", len(ids), reject, *ids, *mask))
print("xxh3-128:" + h.hexdigest())
