# SPDX-License-Identifier: Apache-2.0
"""e2e.train_failures: what the trainer does when something outside it goes wrong, and what people may change on the way.

    train_failures.py --aerie build/cpu/bin/aerie --source .

A disk that fails under one rank, checkpoints that cannot be used, a run that gets nowhere, changed settings, too little warning;
saves on request and by time; --prove.
"""
import json
import os
import re
import shutil
import signal
import sys

from train_lab import STEPS, check, checkpoint_path, end_session, main, pipeline, steps_made, tail, temporary, wait_for_end, wait_until


def ledger(run, kind, what=None):
    return [line for line in pipeline.ledger(run) if line["kind"] == kind and (what is None or line.get("what") == what)]


class Failures:
    def __init__(self, lab):
        self.lab = lab

    def prepared(self):
        self.run = self.lab.clone("straight")
        self.lab.finish(self.run, 2)
        self.reference = self.lab.hashes(self.run)

    def same(self, run):
        check(self.lab.hashes(run) == self.reference, f"{run}: other bits than the straight run")

    def disk(self, name, fault):
        """One rank's disk fails inside the second save, which goes on beside training: 74 on all ranks, the first is whole."""
        run = self.lab.clone(name)
        log = self.lab.finish(run, 2, expect=74, fault=fault, timeout=60)
        check(f"rank {fault.split(':')[1]}" in log, f"the log does not name the rank:\n{log}")
        check(pipeline.checkpoints(run) == ["step-00000004"], f"{run}: checkpoints are {pipeline.checkpoints(run)}")
        check(not temporary(run), f"{run}: left behind: {temporary(run)}")
        check(self.lab.verify(checkpoint_path(run, 4))[0] == 0, f"{run}: the first checkpoint is not whole")
        self.lab.finish(run, 2)
        self.same(run)

    def report(self, name, fault, left, *more):
        """Rank 0 cannot write its record: all ranks end with 74, none is aborted, and the next start makes those steps again."""
        run = self.lab.clone(name)
        log = self.lab.finish(run, 3, *more, expect=74, fault=fault, timeout=60)
        check(log.count("error: ") == 1 and "rank 0" in log and "MPI_ABORT" not in log, f"how it ended:\n{log}")
        check(pipeline.checkpoints(run) == left, f"{run}: checkpoints are {pipeline.checkpoints(run)}")
        self.lab.finish(run, 2)
        self.same(run)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            steps = [line["step"] for line in map(json.loads, f) if "loss" in line]
        check(steps == list(range(1, STEPS + 1)), f"{run}: metrics of steps {steps}")

    def falls_back(self):
        """Two attempts fail while loading the newest: the next takes the one before it, says so, and renames nothing."""
        run = self.lab.clone("falls-back", of=self.run)
        for name in pipeline.checkpoints(run):
            if name > "step-00000008":
                shutil.rmtree(os.path.join(run, "checkpoints", name))
        for _ in range(2):
            self.lab.finish(run, 1, expect=74, fault="ckpt.read_chunk:0:1:throw")
        check(pipeline.checkpoints(run) == ["step-00000004", "step-00000008"], f"{pipeline.checkpoints(run)}")
        log = self.lab.finish(run, 1)
        check("two attempts got nowhere from step 8" in log and f"going on from {checkpoint_path(run, 4)}" in log, log)
        self.same(run)
        check(ledger(run, "evidence", "fallback"), f"{run}: no line of it in the ledger")

    def gets_nowhere(self):
        """Three attempts without progress: 93, and so says aerie may-requeue; --reset-attempts after the repair."""
        run = self.lab.clone("nowhere", of=self.run)
        shutil.rmtree(checkpoint_path(run, STEPS))
        for _ in range(3):
            self.lab.finish(run, 1, expect=74, fault="ckpt.read_chunk:0:1:throw")
        self.lab.call("may-requeue", "--run", run, "74", expect=93)
        self.lab.finish(run, 1, expect=93)
        self.lab.finish(run, 1, "--reset-attempts")
        self.same(run)

    def changes(self):
        run = self.lab.clone("changes", of=self.run)
        shutil.rmtree(checkpoint_path(run, STEPS))
        log = self.lab.finish(run, 1, "--train.lr", "0.001", "--train.seed", "3", expect=78)
        check("train.lr: checkpoint 0.002, now 0.001" in log and "train.seed: checkpoint 1, now 3" in log, log)
        self.lab.finish(run, 1, "--train.seed", "3", "--allow-change=train.seed", expect=2)
        log = self.lab.finish(run, 1, "--train.lr", "0.001", "--allow-change=train.lr", "--train.keep", "9")
        check(ledger(run, "decision", "allow-change")[-1]["details"]["changes"] == ["train.lr: checkpoint 0.002, now 0.001"], log)
        keys = ledger(run, "evidence", "configuration-changed")[-1]["details"]["keys"]
        check(keys.get("train.keep") == {"was": 10, "is": 9}, f"recorded: {keys}")
        check(self.lab.hashes(run) != self.reference, "another learning rate changed nothing")

    def lead_time(self):
        run = self.lab.clone("lead")
        few = ["--train.steps", "9", "--train.save_every_steps", "3"]
        slow = {"fault": "ckpt.after_data:0:*:slow"}
        log = self.lab.finish(run, 1, *few, "--slurm.lead_seconds", "3", **slow)
        check(re.search(r"a stop needs up to \d+\.\d s \(2 x save [2-9]\.\d s \+ step \d+\.\d s\), but only 3 s", log), log)
        strict = self.lab.clone("strict")
        log = self.lab.finish(strict, 1, *few, "--strict", expect=78, env={"AERIE_LEAD_SECONDS": "3"}, **slow)
        check("error: a stop needs up to" in log, log)
        check("step-00000003" in pipeline.checkpoints(strict), "the checkpoint that was measured is gone")
        log = self.lab.finish(strict, 1, *few, "--strict", expect=78, env={"AERIE_LEAD_SECONDS": "3"})
        check(steps_made(strict) <= 6, "the second start trained although the last save was measured")
        log = self.lab.finish(strict, 1, *few, "--strict", env={"AERIE_LEAD_SECONDS": "300"})
        check("a stop needs up to" not in log.split("lead time 300 s", 1)[1].split("\n", 1)[1], log)

    def save_now(self):
        run = self.lab.clone("save-now")
        process = self.lab.start(run, 2, "--train.steps", "100000", "--train.save_every_steps", "0")
        try:
            wait_until(lambda: steps_made(run) >= 2, "step 2", process, run)
            ask = os.path.join(run, "save-now")
            open(ask, "w", encoding="utf-8").close()
            wait_until(lambda: not os.path.exists(ask), "the removal of save-now", process, run)
            saved = pipeline.checkpoints(run)
            check(len(saved) == 1, f"{run}: checkpoints are {saved}")
            wait_until(lambda s=steps_made(run): steps_made(run) > s, "a step after it", process, run)
            os.kill(process.pid, signal.SIGUSR2)
            wait_for_end(process, run, 75)
        finally:
            end_session(process)
        check(len(pipeline.checkpoints(run)) == 2, f"{run}: checkpoints are {pipeline.checkpoints(run)}")

    def by_time(self):
        run = self.lab.clone("by-time")
        process = self.lab.start(run, 2, "--train.steps", "100000", "--train.save_every_steps", "0", "--train.save_every_seconds", "0.5")
        try:
            wait_until(lambda: len(pipeline.checkpoints(run)) >= 3, "three checkpoints", process, run)
            os.kill(process.pid, signal.SIGUSR2)
            wait_for_end(process, run, 75)
        finally:
            end_session(process)

    def bad_step(self):
        """A spike factor so small that noise is a spike: training ends with 65, names samples, and its state is saved."""
        noisy = ["--train.steps", "22", "--train.spike_factor", "0.02"]
        run = self.lab.clone("spike")
        log = self.lab.finish(run, 2, *noisy, expect=65)
        made = steps_made(run)
        check(re.search(rf"step {made + 1}: the loss jumped to .*pack \d+ \(samples [^)]+\)", log), log)
        check(os.path.exists(checkpoint_path(run, made)), f"{run}: step {made} is not saved")
        skip = self.lab.clone("skip")
        self.lab.finish(skip, 1, *noisy, "--train.bad_step", "skip")
        lines = ledger(skip, "evidence", "step-skipped")
        check(lines and lines[0]["details"]["step"] == made + 1 and lines[0]["details"]["samples"], f"ledger: {lines}")
        first = self.lab.hashes(skip, 22)
        other = self.lab.clone("skip-3")
        self.lab.finish(other, 3, *noisy, "--train.bad_step", "skip")
        check(self.lab.hashes(other, 22) == first, "three ranks skip otherwise than one")
        return f"{len(lines)} of 22 steps skipped"

    def prove(self):
        run = self.lab.clone("prove", of=self.run)
        process = self.lab.start(run, 1, "--prove", "8", "--kill-at", "5", "--ranks", "1,2")
        wait_for_end(process, run, 0)
        said = tail(run + ".log")
        check("\nPROVED\n" in said and len(re.findall(r"^\S.* masters +sha256:[0-9a-f]{64}$", said, re.M)) == 3, said)
        check("killed after step 5" in said, said)
        check(len(set(re.findall(r" samples +(\S+)$", said, re.M))) == 1, said)
        check(not [n for n in os.listdir(run) if n.startswith("prove-")], "the scratch directory was left behind")
        self.same(run)

    def prove_can_fail(self):
        """The control: a killed run that trains with another seed is found out."""
        run = self.lab.clone("prove-fails", of=self.run)
        process = self.lab.start(run, 1, "--prove", "4", "--kill-at", "2", "--ranks", "1", fault="prove.other_seed:0:1:eio")
        wait_for_end(process, run, 70)
        check("DIFFERENT" in tail(run + ".log"), tail(run + ".log"))


def stages(lab, arguments, rng):
    f = Failures(lab)
    yield "prepare", f.prepared
    whole = pipeline.checkpoints(f.run)
    yield "fsync fails on rank 1", lambda: f.disk("eio", "file.fsync:1:2:eio")
    yield "no space on rank 1", lambda: f.disk("enospc", "file.pwrite:1:4:enospc")
    yield "no space on rank 0", lambda: f.disk("enospc0", "file.pwrite:0:5:enospc")
    yield "no record of a step", lambda: f.report("record", "train.report:0:7:throw", ["step-00000004"])
    yield "no record of the last step", lambda: f.report("record-last", f"train.report:0:{STEPS}:throw", whole[:-1])
    yield "no record of a save", lambda: f.report("record-save", "train.report_save:0:1:throw", ["step-00000004"])
    # Two are kept, but nothing older is removed before the newest is recorded.
    yield "no record of the last save", lambda: f.report(
        "record-last-save", f"train.report_save:0:{len(whole)}:throw", whole, "--train.keep", "2")
    yield "falls back after two", f.falls_back
    yield "93 after three", f.gets_nowhere
    yield "changed settings", f.changes
    yield "lead time", f.lead_time
    yield "save-now", f.save_now
    yield "saves by time", f.by_time
    yield "bad steps", f.bad_step
    yield "prove", f.prove
    yield "prove, control", f.prove_can_fail


if __name__ == "__main__":
    sys.exit(main(stages, __doc__))
