# SPDX-License-Identifier: Apache-2.0
"""e2e.train_damage: a checkpoint damaged in any way is refused or passed over with the reason, never loaded.

    train_damage.py --aerie build/cpu/bin/aerie --source .

For each way: `aerie verify` says so (65 or 66), aerie-train goes on from the checkpoint before it, names the damage, and comes out
with the bits of a straight run.
"""
import os
import shutil
import signal
import sys

from train_lab import check, checkpoint_path, main, pipeline, temporary

NEWEST, BEFORE = 8, 4


def at(folder, name):
    return os.path.join(folder, name)


def flip(path, where):
    with open(path, "r+b") as f:
        f.seek(where, os.SEEK_SET if where >= 0 else os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))


def truncate(path, share):
    os.truncate(path, int(os.path.getsize(path) * share))


def append(path):
    with open(path, "ab") as f:
        f.write(b"more")


def swap(a, b):
    os.rename(a, a + ".x")
    os.rename(b, a)
    os.rename(a + ".x", b)


def replace_text(path, old, new):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    check(old in text, f"{path}: no {old}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new, 1))


# What is done to the newest checkpoint, and words that the trainer's log or `aerie verify` must hold. Each gets the folder and that
# of the checkpoint before it.
WAYS = {
    "data file cut": (lambda d, o: truncate(at(d, "chunk-0000.bin"), 0.5), "bytes, its manifest says"),
    "data file longer": (lambda d, o: append(at(d, "chunk-0001.bin")), "bytes, its manifest says"),
    "bit of the first file": (lambda d, o: flip(at(d, "chunk-0000.bin"), 12345), "chunk 0 of masters: hash is"),
    "bit of the last byte": (lambda d, o: flip(at(d, "chunk-0001.bin"), -1), "hash is"),
    "bit of the manifest": (lambda d, o: replace_text(at(d, "MANIFEST.json"), '"step": 8', '"step": 9'), "does not hash to its own"),
    "manifest cut": (lambda d, o: truncate(at(d, "MANIFEST.json"), 0.7), "MANIFEST.json"),
    "manifest empty": (lambda d, o: truncate(at(d, "MANIFEST.json"), 0), "MANIFEST.json"),
    "manifest gone": (lambda d, o: os.remove(at(d, "MANIFEST.json")), "MANIFEST.json"),
    "data file gone": (lambda d, o: os.remove(at(d, "chunk-0001.bin")), "no such file"),
    "data files swapped": (lambda d, o: swap(at(d, "chunk-0000.bin"), at(d, "chunk-0001.bin")), "bytes, its manifest says"),
    "manifest of another step": (lambda d, o: shutil.copy(at(o, "MANIFEST.json"), at(d, "MANIFEST.json")), "its directory says 8"),
    "data of another step": (lambda d, o: shutil.copy(at(o, "chunk-0000.bin"), at(d, "chunk-0000.bin")), "hash is"),
    "older one under a newer name": (lambda d, o: (shutil.rmtree(d), shutil.copytree(o, d)), "its directory says 8"),
    "folder in place of a file": (lambda d, o: (os.remove(at(d, "chunk-0000.bin")), os.mkdir(at(d, "chunk-0000.bin"))), "chunk-0000.bin"),
}


class Damage:
    def __init__(self, lab):
        self.lab = lab

    def prepared(self):
        run = self.lab.clone("straight")
        self.lab.finish(run, 2)
        self.reference = self.lab.hashes(run)
        self.half = self.only_two(self.lab.clone("half", of=run))

    @staticmethod
    def only_two(run):
        """Takes the checkpoints after step 8 away, as if training had died soon after it."""
        for name in pipeline.checkpoints(run):
            if name not in ("step-00000004", "step-00000008"):
                shutil.rmtree(os.path.join(run, "checkpoints", name))
        check(pipeline.checkpoints(run) == ["step-00000004", "step-00000008"], f"checkpoints: {pipeline.checkpoints(run)}")
        return run

    def goes_back(self, name, damage, words):
        run = self.lab.clone(name.replace(" ", "-"), of=self.half)
        newest, before = checkpoint_path(run, NEWEST), checkpoint_path(run, BEFORE)
        code, _ = self.lab.verify(newest)
        check(code == 0, f"{newest}: not whole before the damage")
        damage(newest, before)
        code, said = self.lab.verify(newest)
        check(code in (65, 66), f"aerie verify ended {code}, not 65 or 66: {said}")
        check(words in said, f"aerie verify does not say \"{words}\": {said}")
        log = self.lab.finish(run, 1)
        check(words in log and f"going on from {before}" in log, f"the log does not tell of it:\n{log}")
        check(os.path.isdir(newest + ".bad"), f"{run}: no .bad directory: {os.listdir(os.path.join(run, 'checkpoints'))}")
        found = self.lab.hashes(run)
        check(found == self.reference, f"{run}: other bits than the straight run: {found}")
        return f"verify {code}"

    def half_renamed(self):
        """A directory that a death left before its rename is no checkpoint, whatever is in it."""
        run = self.lab.clone("half-renamed", of=self.half)
        os.rename(checkpoint_path(run, NEWEST), checkpoint_path(run, NEWEST) + ".tmp.1")
        log = self.lab.finish(run, 1)
        check(f"going on from {checkpoint_path(run, BEFORE)}" in log, f"the log does not tell of it:\n{log}")
        check(not temporary(run), f"left behind: {temporary(run)}")
        check(self.lab.hashes(run) == self.reference, "other bits than the straight run")

    def refused(self, name, flags, words):
        run = self.lab.clone(name.replace(" ", "-"), of=self.half)
        before = sorted(os.listdir(os.path.join(run, "checkpoints")))
        log = self.lab.finish(run, 1, *flags, expect=78)
        check(words in log, f"the log does not say \"{words}\":\n{log}")
        check(sorted(os.listdir(os.path.join(run, "checkpoints"))) == before, f"{run}: a refusal changed the checkpoints")

    def another_run(self):
        """A whole checkpoint of another run: verifies, and is refused."""
        other = self.lab.clone("other")
        self.lab.finish(other, 2, "--train.seed", "7")
        run = self.lab.clone("another-run", of=self.half)
        shutil.rmtree(checkpoint_path(run, NEWEST))
        shutil.copytree(checkpoint_path(other, NEWEST), checkpoint_path(run, NEWEST))
        log = self.lab.finish(run, 1, expect=78)
        check("train.seed: checkpoint 7, now 1" in log, f"the log does not name the field:\n{log}")

    def read_error(self):
        """Not damage: 74, and nothing is renamed."""
        run = self.lab.clone("read-error", of=self.half)
        log = self.lab.finish(run, 2, expect=74, fault="ckpt.read_chunk:1:1:eio")
        check("rank 1" in log, f"the log does not name the rank:\n{log}")
        check(pipeline.checkpoints(run)[-1] == "step-00000008", f"{run}: {os.listdir(os.path.join(run, 'checkpoints'))}")

    def never_fresh(self):
        """All damaged, or gone: 78, never a silent fresh start; --fresh when nothing is left, as often as need be."""
        run = self.lab.clone("all-damaged", of=self.half)
        self.lab.finish(run, 1, "--fresh", expect=78)  # beside checkpoints
        for step in (BEFORE, NEWEST):
            flip(os.path.join(checkpoint_path(run, step), "chunk-0000.bin"), 99)
        log = self.lab.finish(run, 1, expect=78)
        check("none verifies now" in log, f"the log does not say why:\n{log}")
        self.lab.finish(run, 1, expect=78)
        # Only .bad directories are left. Killed before its first checkpoint, the fresh start may be made again, and it holds for
        # a start without the flag; once something was published it does not.
        for flags in (["--fresh"], ["--fresh"], []):
            self.lab.finish(run, 1, *flags, "--kill-at", "2", "--reset-attempts", expect=-signal.SIGKILL)
        self.lab.finish(run, 1, "--reset-attempts")
        check(self.lab.hashes(run) == self.reference, "a fresh start gave other bits")
        for name in pipeline.checkpoints(run):
            shutil.rmtree(os.path.join(run, "checkpoints", name))
        self.lab.finish(run, 1, expect=78)
        gone = self.lab.clone("all-gone", of=self.half)
        shutil.rmtree(os.path.join(gone, "checkpoints"))
        log = self.lab.finish(gone, 1, expect=78)
        check("none verifies now" in log, f"the log does not say why:\n{log}")


def stages(lab, arguments, rng):
    d = Damage(lab)
    yield "prepare", d.prepared
    for name, (damage, words) in WAYS.items():
        yield name, lambda n=name, f=damage, w=words: d.goes_back(n, f, w)
    yield "half renamed", d.half_renamed
    yield "wrong configuration", lambda: d.refused("wrong configuration", ["--train.lr", "0.5"], "train.lr: checkpoint 0.002, now 0.5")
    yield "checkpoint of another run", d.another_run
    yield "read error", d.read_error
    yield "never a silent fresh start", d.never_fresh


if __name__ == "__main__":
    sys.exit(main(stages, __doc__))
