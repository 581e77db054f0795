# SPDX-License-Identifier: Apache-2.0
"""header.edges: every `#include <aerie/X/...>` under a module is an edge that the module's CMake call lists, or the module itself.

    edges.py SOURCE_DIR MODULE_EDGES_TXT

A module's files are include/aerie/M, src/M and, for the store, io/. What a dependency may include does not count for those above it:
each module lists what its own files name. src/apps sees everything and is seen by nothing. The graph must have no cycle.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]aerie/([a-z_0-9]+)/')
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".in"}
EVERYTHING = "apps"


def read_edges(text):
    """'module: dep dep ...' lines -> {module: set of what it lists}; libraries from outside may be among them."""
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {module.strip(): set(deps.split()) for module, deps in rows.items()}


def find_cycle(edges):
    """The modules of one cycle in order, the first repeated at the end; empty when there is none."""
    finished = set()

    def visit(m, path):
        if m in path:
            return path[path.index(m):] + [m]
        if m not in finished:
            for d in sorted(edges.get(m, ())):
                if cycle := visit(d, path + [m]):
                    return cycle
            finished.add(m)
        return []

    return next((cycle for m in sorted(edges) if (cycle := visit(m, []))), [])


def module_files(source, module):
    folders = [source / "include" / "aerie" / module, source / "src" / module]
    if module == "io":
        folders.append(source / "io")
    for folder in folders:
        yield from (f for f in sorted(folder.rglob("*")) if f.suffix in SOURCES)


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := INCLUDE.match(line):
            yield number, found.group(1)


def modules_on_disk(source):
    names = {folder.name for root in ("include/aerie", "src") for folder in (source / root).glob("*") if folder.is_dir()} | {"io"}
    return {m for m in names if any(True for _ in module_files(source, m))}


def faults(source, edges):
    """One line per forbidden include; also the number of includes seen, so that a test of nothing is noticed."""
    bad, seen = [], 0
    for module in sorted(modules_on_disk(source)):
        if module == EVERYTHING:
            continue
        for path in module_files(source, module):
            for number, target in includes(path):
                seen += 1
                where = f"{path.relative_to(source)}:{number}"
                if target == EVERYTHING:
                    bad.append(f"{where}: nothing may include aerie/{EVERYTHING}")
                elif module in edges and target != module and target not in edges[module]:
                    listed = " ".join(sorted(edges[module])) or "none"
                    bad.append(f"{where}: module {module} may not include aerie/{target} (its edges: {listed})")
    return bad, seen


def main(argv):
    source, edges = pathlib.Path(argv[1]), read_edges(pathlib.Path(argv[2]).read_text())
    bad, seen = faults(source, edges)
    if cycle := find_cycle(edges):
        bad.append("cycle: " + " -> ".join(cycle))
    # A module that this build leaves out (AERIE_LIBTORCH=OFF) is not listed, so its includes are not judged here.
    absent = sorted(modules_on_disk(source) - set(edges) - {EVERYTHING})
    print("\n".join(bad), end="\n" if bad else "")
    print(f"{len(edges)} modules, {seen} includes, {len(bad)} faults; not in this build: {' '.join(absent) or 'none'}")
    return 1 if bad or seen == 0 or not edges else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
