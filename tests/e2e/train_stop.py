# SPDX-License-Identifier: Apache-2.0
"""e2e.train_stop: a signal in each phase ends in exit 75 within the phase's bound; the latencies are printed.

    train_stop.py --aerie build/cpu/bin/aerie --source . [--bound SECONDS]

In a phase that is over in a moment with a tiny target, a fault point holds one rank; the signal ends the hold, and the next look at
the request must end the program. The bound is generous: starting and ending processes on a busy machine takes most of it.
"""
import os
import shutil
import signal
import sys
import time

from train_lab import (PROGRAM, check, checkpoint_path, end_session, main, pipeline, ranks_of, steps_made, tail, temporary,
                       wait_for_end, wait_until)

# name, program, ranks, rank that stands still, fault point (stalls until the signal comes)
HELD = [
    ("hashing the target's weights", "aerie-extract", 2, 0, "extract.hash:0:2:stall"),
    ("scanning the dataset", "aerie-extract", 2, 0, "extract.scan:0:1:stall"),
    ("counting loss slots", PROGRAM, 2, 1, "train.count:1:1:stall"),
    ("loading a checkpoint", PROGRAM, 2, 1, "ckpt.read_chunk:1:1:stall"),
    ("validation", PROGRAM, 2, 1, "train.validate:1:2:stall"),
    ("evaluation", "aerie-eval", 2, 1, "eval.sample:1:1:stall"),
]


class Stops:
    def __init__(self, lab, bound):
        self.lab, self.bound, self.reference = lab, bound, None

    def prepared(self):
        """A run with a checkpoint in the middle."""
        run = self.lab.clone("half")
        self.lab.finish(run, 1, "--kill-at", "10", expect=-signal.SIGKILL)
        check(pipeline.checkpoints(run), f"{run}: no checkpoint after ten steps")
        self.half = run

    def ended_in_time(self, process, run, asked):
        wait_for_end(process, run, 75)
        took = time.monotonic() - asked
        check(took < self.bound, f"{run}: ended {took:.1f} s after the signal, the bound is {self.bound} s")
        return f"{took:.2f} s from signal to end"

    def held(self, name, program, ranks, rank, fault):
        run = self.lab.clone(name.replace(" ", "-").replace("'", ""), of=self.half)
        before = pipeline.checkpoints(run)
        flags = ["--eval.every_steps", "3"] if name == "validation" else []
        if "dataset" in name:  # there must be something to plan
            shutil.rmtree(os.path.join(run, "store"))
        process = self.lab.start(run, ranks, *flags, fault=fault, program=program)
        try:
            wait_until(lambda: "stalls" in tail(run + ".log"), f"{fault}", process, run)
            asked = time.monotonic()
            for pid in ranks_of(process, program):
                os.kill(pid, signal.SIGUSR2)
            said = self.ended_in_time(process, run, asked)
        finally:
            end_session(process)
        check(not temporary(run), f"{run}: left behind: {temporary(run)}")
        if name in ("counting loss slots", "loading a checkpoint"):
            check(pipeline.checkpoints(run) == before, f"{run}: a stop before the first step wrote a checkpoint")
        return said

    def vocabulary(self):
        run = self.lab.clone("vocab")
        os.remove(os.path.join(run, "vocab.safetensors"))
        process = self.lab.start(run, 1, fault="vocab.count:0:3:stall", program="aerie", command="vocab")
        try:
            wait_until(lambda: "stalls" in tail(run + ".log"), "the hold", process, run)
            asked = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            said = self.ended_in_time(process, run, asked)
        finally:
            end_session(process)
        check(not os.path.exists(os.path.join(run, "vocab.safetensors")), f"{run}: a stopped count wrote a vocabulary")
        return said

    def training(self, ranks, channel):
        run = self.lab.clone(f"training-{channel}{ranks}")
        process = self.lab.start(run, ranks, "--train.steps", "100000")
        try:
            wait_until(lambda: steps_made(run) >= 5, "step 5", process, run)
            asked, at = time.monotonic(), steps_made(run)
            if channel == "file":  # rank 0 looks every two seconds
                open(os.path.join(run, "stop"), "w", encoding="utf-8").close()
            else:
                os.kill(ranks_of(process)[-1], getattr(signal, channel))
            said = self.ended_in_time(process, run, asked)
        finally:
            end_session(process)
        made = steps_made(run)
        check(os.path.exists(checkpoint_path(run, made)), f"{run}: step {made} was made and is not in a checkpoint")
        return f"{said}, {made - at} steps after it, none lost"

    def during_a_save(self):
        """The periodic save is finished, then the final one is made."""
        run = self.lab.clone("save")
        process = self.lab.start(run, 2, "--train.steps", "100000", fault="ckpt.after_data:1:1:slow")
        try:
            wait_until(lambda: temporary(run), "a save", process, run)
            saving = int(temporary(run)[0].split(".")[0].split("-")[1])
            wait_until(lambda: steps_made(run) > saving, "a step beside the save", process, run)
            asked = time.monotonic()
            for pid in ranks_of(process):
                os.kill(pid, signal.SIGUSR2)
                os.kill(pid, signal.SIGUSR2)  # twice changes nothing
            said = self.ended_in_time(process, run, asked)
        finally:
            end_session(process)
        made = steps_made(run)
        check(pipeline.checkpoints(run)[-2:] == [f"step-{saving:08d}", f"step-{made:08d}"] and made > saving,
              f"{run}: checkpoints are {pipeline.checkpoints(run)}, saving was {saving}, made {made}")
        return f"{said}, both checkpoints are there"


def stages(lab, arguments, rng):
    s = Stops(lab, arguments.bound)
    yield "prepare", s.prepared
    for case in HELD:
        yield case[0], lambda c=case: s.held(*c)
    yield "counting the vocabulary", s.vocabulary
    for ranks, channel in ((1, "SIGUSR2"), (3, "SIGTERM"), (2, "file")):
        yield f"training, {channel} on {ranks}", lambda r=ranks, c=channel: s.training(r, c)
    yield "during a save", s.during_a_save


if __name__ == "__main__":
    sys.exit(main(stages, __doc__, [("--bound", 20.0)]))
