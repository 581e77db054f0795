# SPDX-License-Identifier: Apache-2.0
"""crash.train_save_kill: SIGKILL to all ranks of aerie-train inside its saves, again and again.

    train_save_kill.py --aerie build/cpu/bin/aerie --source . [--kills N] [--seed S]

After each kill every published checkpoint verifies and the newest is the last one that the ledger knows, or newer; the next start
goes on from it and removes what the kill left. Half of the kills come at a random moment, half in a save that a fault point slows
down at a random place. Only kills that came inside a save count.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from train_lab import check, end_session, kill_all, main, pipeline, temporary, wait_for_end, wait_until  # noqa: E402

POINTS = ["ckpt.after_tmp_dir", "ckpt.after_data", "ckpt.after_data_fsync", "ckpt.after_manifest", "ckpt.before_rename"]
FLAGS = ["--train.steps", "1000000", "--train.save_every_steps", "1", "--train.keep", "2"]


class Kills:
    def __init__(self, lab, kills, rng):
        self.lab, self.kills, self.rng = lab, kills, rng
        self.run, self.inside, self.starts, self.lost = lab.clone("run"), 0, 0, []

    def newest(self):
        names = pipeline.checkpoints(self.run)
        return int(names[-1][5:]) if names else 0

    def recorded(self):
        lines = pipeline.ledger(self.run) if os.path.exists(os.path.join(self.run, "ledger.jsonl")) else []
        return max([line["step"] for line in lines if line["kind"] == "checkpoint"], default=0)

    def trial(self):
        ranks = self.rng.choice([1, 2])
        fault = f"{self.rng.choice(POINTS)}:0:{self.rng.choice([2, 3])}:slow" if self.rng.random() < 0.5 else None
        before, left = self.newest(), temporary(self.run)
        process = self.lab.start(self.run, ranks, *FLAGS, fault=fault)
        self.starts += 1
        try:
            wait_until(lambda: self.newest() > before, "a checkpoint after the kill", process, self.run)
            stray = [n for n in left if n in temporary(self.run)]
            check(not stray, f"the start after the kill left {stray} behind")
            wait_until(lambda: temporary(self.run), "a save", process, self.run, poll=0.0005)
            time.sleep(self.rng.random() * (0.5 if fault else 0.02))
            check(kill_all(process, ranks) == ranks, "not every rank was alive when it was to be killed")
        finally:
            end_session(process)
        self.inside += bool(temporary(self.run))
        newest, recorded = self.newest(), self.recorded()
        check(newest >= recorded > 0, f"the newest checkpoint is {newest}, but {recorded} was recorded as published")
        for name in pipeline.checkpoints(self.run):
            code, said = self.lab.verify(os.path.join(self.run, "checkpoints", name))
            check(code == 0, f"{name} does not verify after a kill: {said}")

    def all(self):
        while self.inside < self.kills:
            check(self.starts < 4 * self.kills + 4, f"only {self.inside} of {self.starts} kills came inside a save")
            self.trial()
        process = self.lab.start(self.run, 2, *FLAGS)
        try:
            before = self.newest()
            wait_until(lambda: self.newest() > before, "a checkpoint", process, self.run)
            os.kill(process.pid, 12)  # USR2
            wait_for_end(process, self.run, 75)
        finally:
            end_session(process)
        check(not temporary(self.run), f"left behind at the end: {temporary(self.run)}")
        bad = [n for n in os.listdir(os.path.join(self.run, "checkpoints")) if ".bad" in n]
        check(not bad, f"checkpoints were set aside: {bad}")
        return f"{self.inside} kills inside a save of {self.starts} kills, {self.newest()} steps made"


def stages(lab, arguments, rng):
    yield f"{arguments.kills} kills", Kills(lab, arguments.kills, rng).all


if __name__ == "__main__":
    sys.exit(main(stages, __doc__, [("--kills", 15)]))
