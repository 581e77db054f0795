# SPDX-License-Identifier: Apache-2.0
"""e2e.train_matrix: one SHA-256 of masters and moments, and one sample order, whatever happens to training.

    train_matrix.py --aerie build/cpu/bin/aerie --source . [--rounds N] [--seed S] [--keep DIR]

On 1, 2, 3 and 4 ranks: straight; stopped by a signal to one rank and resumed on another count; killed by SIGKILL at a random step,
killed again inside a save on another count, and finished on a third. Then validation during training, which must change nothing,
and two controls that must be found out: the position in the data off by one, and moments that are not restored.
--rounds repeats the stops and kills at other moments.
"""
import contextlib
import os
import signal
import subprocess
import sys
import time

from train_lab import (STEPS, Failed, check, checkpoint_path, end_session, kill_all, main, ranks_of, steps_made, temporary,
                       wait_for_end, wait_until)

HERE = os.path.dirname(os.path.abspath(__file__))


def signal_until_end(process, rank, number):
    """To one rank, again and again: one that comes a moment before the rank stands still does not wake it."""
    pids = ranks_of(process)
    by_rank = [pid for pid in pids if rank_number(pid) == rank]
    check(len(by_rank) == 1, f"rank {rank} is not among {pids}")
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(by_rank[0], number)
        time.sleep(0.2)


def rank_number(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        found = [e.split(b"=")[1] for e in f.read().split(b"\0") if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
    return int(found[0]) if found else 0


def following(ranks):
    return ranks % 4 + 1


class Matrix:
    def __init__(self, lab, rng):
        self.lab, self.rng, self.reference = lab, rng, None

    def compare(self, run):
        found = self.lab.hashes(run)
        if self.reference is None:
            self.reference = found
        wrong = sorted(name for name in found if found[name] != self.reference[name])
        check(not wrong, f"{run}: {', '.join(wrong)} differ from the first run's")
        left = temporary(run)
        check(not left, f"{run}: left behind: {left}")

    def straight(self, ranks):
        run = self.lab.clone(f"straight{ranks}")
        self.lab.finish(run, ranks)
        self.compare(run)

    def held(self, run, ranks, step):
        """Starts training that comes to `step` and no further, so that what is to happen before its end does on any machine:
        (process, the rank that stands still there until a signal comes)."""
        rank = self.rng.randrange(ranks)
        return self.lab.start(run, ranks, fault=f"train.step:{rank}:{step}:stall"), rank

    def stopped(self, ranks, turn):
        """A signal to one rank; all stop at the same step, save and end with 75."""
        run = self.lab.clone(f"stopped{ranks}.{turn}")
        at = self.rng.randrange(1, STEPS - 2)
        process, warned = self.held(run, ranks, at + 2)
        try:
            wait_until(lambda: steps_made(run) >= at, f"step {at}", process, run)
            signal_until_end(process, warned, self.rng.choice([signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM]))
            wait_for_end(process, run, 75)
        finally:
            end_session(process)
        made = steps_made(run)
        check(os.path.exists(checkpoint_path(run, made)), f"{run}: stopped after step {made}, whose checkpoint is not there")
        self.lab.finish(run, following(ranks))
        self.compare(run)
        return f"stopped after step {made}, went on on {following(ranks)}"

    def killed(self, ranks, turn):
        run = self.lab.clone(f"killed{ranks}.{turn}")
        at = self.rng.randrange(1, STEPS // 2)
        process, _ = self.held(run, ranks, at + 3)
        try:
            wait_until(lambda: steps_made(run) >= at, f"step {at}", process, run)
            time.sleep(self.rng.random() * 0.05)
            check(kill_all(process, ranks) > 0, f"{run}: nothing was left to kill")
        finally:
            end_session(process)
        first = steps_made(run)
        second = self.killed_in_a_save(run, following(ranks))
        self.lab.finish(run, following(following(ranks)))
        self.compare(run)
        return f"killed after step {first} and while {second} was being saved"

    def killed_in_a_save(self, run, ranks):
        process = self.lab.start(run, ranks, fault="ckpt.after_data:*:*:slow")  # the window of each save is two seconds wide
        try:
            def saves():  # which have data (any rank's: with more ranks than blocks some write none)
                names = {n: os.path.join(run, "checkpoints", n) for n in temporary(run)}
                return [n for n, path in names.items() if os.path.isdir(path) and any(f.startswith("chunk") for f in os.listdir(path))]
            wait_until(saves, "a save", process, run)
            saving = saves()
            time.sleep(self.rng.random() * 0.2)
            check(kill_all(process, ranks) > 0, f"{run}: nothing was left to kill")
        finally:
            end_session(process)
        check(temporary(run), f"{run}: the kill was to come inside the save of {saving}")
        return saving[-1].split(".")[0] if saving else "?"

    def validated(self):
        run = self.lab.clone("validated")
        self.lab.finish(run, 2, "--eval.every_steps", "3")
        self.compare(run)
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [line for line in f if '"validation"' in line]
        check(len(lines) == STEPS // 3, f"{run}: {len(lines)} validations, not {STEPS // 3}")

    def control(self, change):
        """Must come out different, else the comparison sees nothing."""
        run = self.lab.clone(f"control-{change}")
        self.lab.finish(run, 1, "--kill-at", "10", expect=-signal.SIGKILL)
        newest = max(n for n in os.listdir(os.path.join(run, "checkpoints")) if n[5:].isdigit())
        done = subprocess.run([self.lab.python, os.path.join(HERE, "edit_checkpoint.py"), change,
                               os.path.join(run, "checkpoints", newest)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        check(done.returncode == 0, f"edit_checkpoint.py: {done.stderr}")
        self.lab.finish(run, 1)
        try:
            self.compare(run)
        except Failed as e:
            check("samples" in str(e) if change == "position" else "exp_avg" in str(e), f"found, but not as expected: {e}")
            return f"found out: {str(e).split(': ', 1)[1]}"
        raise Failed(f"{change} was changed in a checkpoint and the result is the same")


def stages(lab, arguments, rng):
    m = Matrix(lab, rng)
    for ranks in (1, 2, 3, 4):
        yield f"straight on {ranks}", lambda r=ranks: m.straight(r)
    if m.reference:
        print("\n".join(f"  {name} {digest}" for name, digest in sorted(m.reference.items())), flush=True)
    for turn in range(arguments.rounds):
        for ranks in (1, 2, 3, 4):
            yield f"stopped on {ranks}", lambda r=ranks, t=turn: m.stopped(r, t)
        for ranks in (1, 2, 3, 4):
            yield f"killed on {ranks}", lambda r=ranks, t=turn: m.killed(r, t)
    yield "validation during training", m.validated
    yield "control: position off by one", lambda: m.control("position")
    yield "control: moments not restored", lambda: m.control("moments")


if __name__ == "__main__":
    sys.exit(main(stages, __doc__, [("--rounds", 1)]))
