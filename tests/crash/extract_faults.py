# SPDX-License-Identifier: Apache-2.0
"""crash.extract_faults: one rank of a two-rank aerie-extract gets an error from its disk.

    extract_faults.py --aerie build/cpu/bin/aerie --source . --mpiexec mpirun

Each fault strikes one rank once. Both ranks must end 74, nothing may be reported as done after it, and the same command without the
fault completes the store with the samples that a run without faults gives.
"""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "e2e"))
from pipeline import SAMPLES, Failed, Lab, check  # noqa: E402

FAULTS = ["file.fdatasync:1:1:eio", "file.fdatasync:1:3:eio", "file.fdatasync:0:2:eio", "file.pwrite:1:30:enospc",
          "store.sync_before_trust:1:1:eio", "store.after_data_sync:0:2:throw"]
WRAPPER = '"$@"; code=$?; echo $code > "$CODES.$OMPI_COMM_WORLD_RANK"; exit $code'


class Extraction:
    def __init__(self, lab, mpiexec):
        self.lab, self.mpiexec = lab, mpiexec
        self.program = os.path.join(os.path.dirname(lab.aerie), "aerie-extract")

    def run(self, run, fault=""):
        """The exit codes of both ranks; None where a rank left none."""
        codes = os.path.join(run, "code")
        for rank in (0, 1):
            if os.path.exists(f"{codes}.{rank}"):
                os.unlink(f"{codes}.{rank}")
        env = dict(self.lab.env, AERIE_FAULT=fault, CODES=codes)
        done = subprocess.run([*self.mpiexec, "-n", "2", "bash", "-c", WRAPPER, "extract", self.program, "--run", run],
                              env=env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.text = done.stdout + done.stderr
        found = []
        for rank in (0, 1):
            path = f"{codes}.{rank}"
            found.append(None)
            if os.path.exists(path):
                with open(path, encoding="ascii") as f:
                    found[rank] = int(f.read())
        return found


def last_end(run):
    with open(os.path.join(run, "ledger.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    ends = [line for line in lines if line["kind"] == "attempt" and line["event"] == "end"]
    complete = [line for line in lines if line["kind"] == "phase" and line["phase"] == "extract" and line["state"] == "complete"]
    return ends[-1], complete


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--aerie", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--mpiexec", type=shlex.split, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aerie-extract-faults-") as folder:
        lab = Lab(args.aerie, args.source, folder)
        extraction = Extraction(lab, args.mpiexec)
        prepared = lab.init("prepared")
        lab.call("run", prepared, "--to", "prepare")
        try:
            straight = os.path.join(folder, "straight")
            shutil.copytree(prepared, straight)
            codes = extraction.run(straight)
            check(codes == [0, 0], f"without a fault the ranks ended {codes}:\n{extraction.text[-3000:]}")
            expected = lab.store(straight)
            check(expected["done"] == SAMPLES, f"without a fault the store holds {expected}")
            for i, fault in enumerate(FAULTS):
                run = os.path.join(folder, f"fault-{i}")
                shutil.copytree(prepared, run)
                codes = extraction.run(run, fault)
                check(codes == [74, 74], f"{fault}: the ranks ended {codes}, not 74 and 74:\n{extraction.text[-3000:]}")
                end, complete = last_end(run)
                check(end["exit_code"] == 74, f"{fault}: the ledger says {end}")
                check(not complete, f"{fault}: the ledger says that extraction is complete")
                found = lab.store(run)
                check(found["done"] < SAMPLES and found["bad_checksum"] == found["torn"] == 0, f"{fault}: the store holds {found}")
                codes = extraction.run(run)
                check(codes == [0, 0], f"{fault}: resumed, the ranks ended {codes}:\n{extraction.text[-3000:]}")
                check(lab.store(run) == expected, f"{fault}: resumed, the store is another one than without the fault")
                lab.call("verify", run, "--full")
        except Failed as e:
            print(f"FAILED: {e}")
            return 1
        print(f"{len(FAULTS)} faults on one of two ranks: 74 on both, resumed to the same store")
    return 0


if __name__ == "__main__":
    sys.exit(main())
