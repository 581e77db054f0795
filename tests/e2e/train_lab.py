# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests of training share: a run prepared once up to the vocabulary and cloned per trial, starts of
aerie-train on any number of ranks, kills, and the hashes that must come out. Standard library only."""
import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pipeline  # noqa: E402
from pipeline import Failed, check, end_session, session_members, tail  # noqa: E402,F401

STEPS = 12
SETTINGS = pipeline.SETTINGS | {"train.steps": STEPS, "train.save_every_steps": 4, "train.keep": 10,
                                "train.ttt_steps": 2, "train.pack_tokens": 192, "train.packs_per_step": 2, "eval.holdout": 0.15}
PROGRAM = "aerie-train"


class TrainLab(pipeline.Lab):
    """The programs and a run `base` that is ready for training; samples of the evaluation are held out of it."""

    def __init__(self, aerie, source, folder):
        super().__init__(aerie, source, folder)
        self.env.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        self.bin = os.path.dirname(self.aerie)
        self.base = os.path.join(folder, "base")
        sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        self.call("init", self.base, "--target", self.target, "--conversations", self.train, *sets)
        self.call("run", self.base, "--to", "vocab", timeout=300)

    def clone(self, name, of=None):
        run = os.path.join(self.folder, name)
        shutil.copytree(of or self.base, run, symlinks=True)
        return run

    def start(self, run, ranks=1, *flags, fault=None, program=PROGRAM, command=None, env=None):
        """Starts a program of the suite on `ranks` ranks, in a session of its own; its log is RUN.log."""
        words = [os.path.join(self.bin, program), *([command] if command else []), "--run", run, *flags]
        if ranks > 1:
            words = ["mpirun", "-q", "--bind-to", "none", "--oversubscribe", "-n", str(ranks), *words]
        all_env = dict(self.env, **(env or {}))
        if fault:
            all_env["AERIE_FAULT"] = fault
        with open(run + ".log", "a", encoding="utf-8") as log:
            return subprocess.Popen(words, env=all_env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def finish(self, run, ranks=1, *flags, expect=0, timeout=180, **more):
        """Runs it to its end; returns what it logged."""
        before = os.path.getsize(run + ".log") if os.path.exists(run + ".log") else 0
        process = self.start(run, ranks, *flags, **more)
        wait_for_end(process, run, expect, timeout)
        with open(run + ".log", encoding="utf-8", errors="replace") as log:
            log.seek(before)
            return log.read()

    def hashes(self, run, steps=STEPS):
        """SHA-256 of every vector of the last checkpoint, and of the sample order."""
        names = pipeline.checkpoints(run)
        check(names and names[-1] == step_name(steps), f"{run}: the last checkpoint is {names[-1:]}, not step {steps}")
        vectors = pipeline.sha256_by_vector(json.loads(self.call("inspect", "--json", os.path.join(run, "checkpoints", names[-1]))))
        check({"masters", "exp_avg", "exp_avg_sq"} <= set(vectors), f"aerie inspect names {sorted(vectors)}")
        with open(os.path.join(run, "samples.jsonl"), "rb") as f:
            order = f.read()
        lines = [json.loads(line) for line in order.splitlines()]
        check([line["step"] for line in lines] == list(range(1, steps + 1)), f"{run}: samples.jsonl does not hold every step once")
        return vectors | {"samples": hashlib.sha256(order).hexdigest()}

    def verify(self, path):
        """Exit code of `aerie verify` and what it said."""
        done = subprocess.run([self.aerie, "verify", "--full", path], env=self.env, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr


def step_name(step):
    return f"step-{step:08d}"


def checkpoint_path(run, step):
    return os.path.join(run, "checkpoints", step_name(step))


def wait_for_end(process, run, expect, timeout=180):
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"{run}: no end after {timeout} s; its log ends:\n{tail(run + '.log')}") from None
    finally:
        end_session(process)
    check(code == expect, f"{run}: ended {code}, not {expect}; its log ends:\n{tail(run + '.log')}")


def steps_made(run):
    """The newest step that metrics.jsonl knows of."""
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as f:
            lines = f.read().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            if "step" in (value := json.loads(line)):
                return value["step"]
    return 0


def wait_until(holds, what, process, run, timeout=120, poll=0.002):
    """Polls until `holds()`; a program that ends before is a failure."""
    deadline = time.monotonic() + timeout
    while not holds():
        check(process.poll() is None, f"{run}: ended {process.returncode} before {what}; its log ends:\n{tail(run + '.log')}")
        check(time.monotonic() < deadline, f"{run}: {what} did not happen in {timeout} s:\n{tail(run + '.log')}")
        time.sleep(poll)


def temporary(run):
    folder = os.path.join(run, "checkpoints")
    return [n for n in os.listdir(folder) if ".tmp." in n or n.endswith(".old")] if os.path.isdir(folder) else []


def ranks_of(process, program=PROGRAM):
    return sorted(pid for pid, name in session_members(process.pid).items() if name == program)


def kill_all(process, ranks, program=PROGRAM):
    """SIGKILL to every rank, then to what is left of the session. Returns how many ranks were alive."""
    alive = ranks_of(process, program)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end_session(process)
    return len(alive)


def main(stages, description, options=()):
    """`stages(lab, arguments, rng)` yields (name, action); each is reported and timed, whatever went wrong in it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--aerie", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--keep", help="work in this folder and leave it behind")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments; printed")
    parser.add_argument("--only", default="", help="stages whose name holds one of these, split by |")
    for name, value in options:
        parser.add_argument(name, type=type(value), default=value)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    folder = arguments.keep or tempfile.mkdtemp(prefix="aerie-train-")
    os.makedirs(folder, exist_ok=True)
    failures = 0
    try:
        lab = TrainLab(arguments.aerie, arguments.source, folder)
        for name, action in stages(lab, arguments, random.Random(seed)):
            if not any(part in name for part in arguments.only.split("|")):
                continue
            began = time.monotonic()
            try:
                said = action()
                verdict = "ok" + (f", {said}" if said else "")
            except Exception as e:
                failures += 1
                verdict = "FAILED: " + (str(e) if isinstance(e, Failed) else traceback.format_exc())
            print(f"{name}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0
