# SPDX-License-Identifier: Apache-2.0
"""header.aerie_links_no_gpu: `aerie` runs on login nodes, so ldd may name no CUDA, NCCL or LibTorch library."""
import re
import subprocess
import sys

FORBIDDEN = re.compile(r"lib(torch|c10|caffe2|cuda|cudart|cublas|cudnn|cupti|nccl|nvrtc|nvToolsExt)[^/]*\.so", re.IGNORECASE)


def main(program):
    ldd = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in ldd.splitlines() if line.strip()]
    bad = [n for n in names if FORBIDDEN.search(n)]
    missing = [line.strip() for line in ldd.splitlines() if "not found" in line]
    print("\n".join(bad + missing) or f"{program}: {len(names)} libraries, none forbidden")
    # libc must be among them: a list that lacks it was not read right.
    return 1 if bad or missing or not any(n.startswith("libc.so") for n in names) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
