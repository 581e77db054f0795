# SPDX-License-Identifier: Apache-2.0
"""The control of header.edges: trees with a forbidden include, a cycle or an include of apps must be found."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import edges  # noqa: E402

TABLE = "base: Threads\ncomm: base MPI::MPI_CXX\nio: base comm\ntrain: io\n"


class Edges(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def faults(self, table=TABLE):
        return edges.faults(self.root, edges.read_edges(table))[0]

    def test_listed_edges_and_the_module_itself_pass(self):
        self.write("src/comm/a.cpp", "#include <aerie/base/error.hpp>\n#include <aerie/comm/x.hpp>\n#include <mpi.h>\n")
        self.assertEqual(self.faults(), [])

    def test_an_edge_of_a_dependency_does_not_count(self):
        self.write("src/train/a.cpp", "#include <aerie/io/store.hpp>\n#include <aerie/base/error.hpp>\n")
        self.assertEqual(len(self.faults()), 1)

    def test_unlisted_edge_is_named_with_file_and_line(self):
        self.write("include/aerie/comm/comm.hpp", "#pragma once\n  #  include <aerie/io/store.hpp>\n")
        found = self.faults()
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("include/aerie/comm/comm.hpp:2: module comm may not include aerie/io"))

    def test_the_io_folder_and_kernels_are_read(self):
        self.write("io/write.cpp", "#include <aerie/train/x.hpp>\n")
        self.write("src/comm/kernels/k.cu", '#include "aerie/train/x.hpp"\n')
        self.assertEqual(len(self.faults()), 2)

    def test_nothing_includes_apps(self):
        self.write("src/train/a.cpp", "#include <aerie/apps/run.hpp>\n")
        self.assertEqual(len(self.faults()), 1)

    def test_apps_include_everything(self):
        self.write("src/apps/main.cpp", "#include <aerie/train/x.hpp>\n")
        self.assertEqual(self.faults(), [])

    def test_cycle(self):
        self.assertEqual(edges.find_cycle(edges.read_edges("base: comm\ncomm: base\n")), ["base", "comm", "base"])
        self.assertEqual(edges.find_cycle(edges.read_edges(TABLE)), [])


if __name__ == "__main__":
    unittest.main()
