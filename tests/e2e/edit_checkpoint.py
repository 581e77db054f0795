# SPDX-License-Identifier: Apache-2.0
"""Changes a checkpoint so that it still verifies: the controls of the tests of training. Needs xxhash.

    edit_checkpoint.py position|moments DIR

position: one pack more consumed. moments: both moments zero. Hashes of chunks and manifest are made anew."""
import hashlib
import json
import os
import sys

import xxhash


def main(change, folder):
    path = os.path.join(folder, "MANIFEST.json")
    with open(path, encoding="utf-8") as f:
        manifest = json.load(f)
    if change == "position":
        manifest["position"]["packs_consumed"] += 1
    else:
        for record in manifest["chunks"]:
            if record["vector"] == "masters":
                continue
            zeros = bytes(record["bytes"])
            with open(os.path.join(folder, record["file"]), "r+b") as f:
                f.seek(record["offset"])
                f.write(zeros)
            record["xxh3_128"] = "xxh3-128:" + xxhash.xxh3_128(zeros).hexdigest()
    del manifest["manifest_hash"]
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    manifest["manifest_hash"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    with open(path, "w", encoding="utf-8") as f:
        json.dump(manifest, f)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
