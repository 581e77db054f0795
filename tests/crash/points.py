# SPDX-License-Identifier: Apache-2.0
"""crash.points: every fault point in the sources is named by a crash test, and the crash tests name no point that is gone.

    points.py SOURCE_DIR
"""
import pathlib
import re
import sys

# A point is the first argument of one of these; names without a module and a dot are not points.
CALL = re.compile(r'\b(?:fault_point|fault_call|pass_fault_point|pass|transfer|write_all|sync_call)\([^"\n;]*"([a-z]+\.[a-z_]+)"')
NAME = re.compile(r'"((?:file|store|ckpt|[a-z]+)\.[a-z_]+)(?::[^"]*)?"')
TESTS = ["tests/crash/*.cpp", "tests/crash/*.py", "tests/unit/ckpt/crash.cpp", "tests/unit/io/mpio.cpp"]
SPEC = re.compile(r'"([a-z]+\.[a-z_]+):[^"]*"')  # elsewhere a name may be a key of the configuration; with a colon it is a fault
OTHERS = ["tests/e2e/*.py", "tests/slurm/*.py", "tests/unit/io/CMakeLists.txt"]


def main():
    source = pathlib.Path(sys.argv[1])
    points = {}
    for folder in ("src", "io"):
        for path in sorted((source / folder).rglob("*.[ch]pp")):
            for name in CALL.findall(path.read_text(encoding="utf-8")):
                points.setdefault(name, path.relative_to(source))
    named = set()
    for pattern in TESTS:
        for path in source.glob(pattern):
            named |= set(NAME.findall(path.read_text(encoding="utf-8")))
    others = set()
    for pattern in OTHERS:
        for path in source.glob(pattern):
            others |= set(SPEC.findall(path.read_text(encoding="utf-8")))
    modules = {name.split(".")[0] for name in points}
    missing = sorted(set(points) - named - others)
    gone = sorted(n for n in named - set(points) if n.split(".")[0] in modules)
    for name in missing:
        print(f"{points[name]}: fault point {name} has no crash test")
    for name in gone:
        print(f"a crash test names {name}, which is in no source")
    print(f"{len(points)} fault points: {' '.join(sorted(points))}")
    return 1 if missing or gone or len(points) < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
