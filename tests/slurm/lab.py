# SPDX-License-Identifier: Apache-2.0
"""What the Slurm scenarios share: the runs they start from, submission through `aerie submit`, and looking at what came out.

The base folder holds a target, conversations and, for two lengths of training, a run that is extracted, verified and has its
vocabulary, the same run trained without disturbance outside Slurm, and the hashes of both. `make_base` fills it once; scenarios copy.
"""
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import pipeline  # noqa: E402
import tiny_target  # noqa: E402

SAMPLES, EVAL_SAMPLES = 40, 6
COMMON = {
    "dataset.max_length": 192, "extract.layers": [1, 3, 6], "extract.part_bytes": 128 << 10, "extract.commit_bytes": 32 << 10,
    "extract.batch_tokens": 256, "draft.vocab_size": 64, "draft.intermediate_size": 2048, "train.ttt_steps": 3,
    "train.pack_tokens": 256, "train.lr": 2e-3, "train.keep": 50,
}
# short: over in some seconds, long enough to be met in the middle; long: for what needs a minute or many attempts.
LENGTHS = {"short": {"train.steps": 60, "train.packs_per_step": 3, "train.save_every_steps": 10},
           "long": {"train.steps": 120, "train.packs_per_step": 9, "train.save_every_steps": 50}}
FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


def check(holds, claim):
    if not holds:
        raise pipeline.Failed(claim)


def environment(aerie, source):
    env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_hwloc_base_binding_policy="none",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    own = os.path.join(source, ".deps", "venv", "bin", "python")
    if "AERIE_PYTHON" not in env and os.path.exists(own):
        env["AERIE_PYTHON"] = own
    return env


def call(env, *words, timeout=300, expect=0):
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    check(done.returncode == expect,
          f"{' '.join(words)} ended {done.returncode}, not {expect}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def read_store(env, run):
    return json.loads(call(env, env.get("AERIE_PYTHON", sys.executable), os.path.join(HERE, "..", "e2e", "read_store.py"),
                           os.path.join(run, "store")))


def trained_hashes(env, aerie, run, steps):
    """SHA-256 of every vector of the last checkpoint: weights and both moments."""
    folder = os.path.join(run, "checkpoints", f"step-{steps:08d}")
    found = pipeline.sha256_by_vector(json.loads(call(env, aerie, "inspect", "--json", folder)))
    check({"masters", "exp_avg", "exp_avg_sq"} <= set(found), f"aerie inspect names {sorted(found)}")
    return found


def make_base(aerie, source, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    env = environment(aerie, source)
    train, evaluation = os.path.join(folder, "train.jsonl.gz"), os.path.join(folder, "eval.jsonl.gz")
    tiny_target.write_target(os.path.join(folder, "target"))
    tiny_target.write_conversations(train, SAMPLES, seed=1)
    tiny_target.write_conversations(evaluation, EVAL_SAMPLES, seed=2)
    facts = {}
    for name, length in LENGTHS.items():
        run = os.path.join(folder, name)
        sets = [w for k, v in (COMMON | length).items() for w in ("--set", f"{k}={json.dumps(v)}")]
        call(env, aerie, "init", run, "--target", os.path.join(folder, "target"), "--conversations", train,
             "--eval-conversations", evaluation, *sets)
        call(env, aerie, "run", run, "--to", "prepare")
        if name == "short":
            shutil.copytree(run, os.path.join(folder, "prepared"))
        call(env, aerie, "run", run, "--to", "vocab")
        trained = os.path.join(folder, name + "-trained")
        shutil.copytree(run, trained)
        call(env, aerie, "run", trained, "--to", "train", timeout=600)
        facts[name] = {"trained": trained_hashes(env, aerie, trained, length["train.steps"]), "store": read_store(env, trained)}
        shutil.rmtree(trained)
    check(facts["short"]["store"]["done"] == SAMPLES, f"the base store: {facts['short']['store']}")
    with open(os.path.join(folder, "facts.json"), "w", encoding="utf-8") as f:
        json.dump(facts, f, indent=1)


class Run:
    """A copy of a base run inside a cluster's folder."""

    def __init__(self, lab, name, base="short", launcher="srun", **site):
        self.lab, self.cluster, self.base = lab, lab.cluster, base
        self.path = os.path.join(lab.cluster.folder, name)
        shutil.copytree(os.path.join(lab.base, base), self.path)
        self.site(launcher, **site)
        self.jobs = {}

    def site(self, launcher, **more):
        """Writes site.env. `armed` in the run is sourced by every start of a job: how a test sets a fault point."""
        settings = {"GPUS_PER_NODE": 1, "LAUNCHER": launcher, "GRES": "none", "SUBMIT_ALL": "--partition=low --time=20 --chdir=/tmp",
                    "SUBMIT_TRAIN": "--nodes=1-3", "SUBMIT_EXTRACT": "--nodes=1-3", "AERIE_LINGER": 90} | more
        with open(self.path + ".env", "w", encoding="utf-8") as f:
            f.write("".join(f"{k}='{v}'\n" for k, v in settings.items()))
            f.write("export AERIE_LINGER\n[ ! -e \"$RUN/armed\" ] || . \"$RUN/armed\"\n")

    def arm(self, text):
        with open(os.path.join(self.path, "armed"), "w", encoding="utf-8") as f:
            f.write(text + "\n")

    def disarm(self):
        os.remove(os.path.join(self.path, "armed"))

    def submit(self, *flags, expect=0):
        env = self.cluster.env | {k: v for k, v in self.lab.env.items() if k == "AERIE_PYTHON"}
        out = call(env, self.lab.aerie, "submit", self.path, "--site", self.path + ".env", *flags, expect=expect)
        self.jobs = dict(line.split() for line in out.splitlines() if len(line.split()) == 2)
        return self.jobs

    # --- looking

    def ledger(self):
        return pipeline.ledger(self.path)

    def attempts(self, program):
        """[(begin line, end line or None)] of a program, oldest first."""
        found = {}
        for line in self.ledger():
            if line["kind"] == "attempt" and line["program"] == program:
                found.setdefault(line["number"], [None, None])[line["event"] == "end"] = line
        return [tuple(pair) for _, pair in sorted(found.items())]

    def ends(self, program):
        return [None if end is None else end["exit_code"] for _, end in self.attempts(program)]

    def phase_lines(self, phase, state):
        return [x for x in self.ledger() if x["kind"] == "phase" and x["phase"] == phase and x["state"] == state]

    def steps(self):
        path = os.path.join(self.path, "metrics.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as f:
            return [json.loads(line)["step"] for line in f if line.endswith("\n")]

    def step(self):
        return max(self.steps(), default=0)

    def wait_step(self, step, timeout=120):
        return self.cluster.wait_for(lambda: self.step() >= step and self.step(), timeout, f"step {step}")

    def started_at(self):
        """The steps at which the attempts of training began, from the job's log."""
        return [int(n) for n in re.findall(r"steps (\d+)\.\.\d+ of", self.log())]

    def log(self):
        folder = os.path.join(self.path, "logs")
        text = ""
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                text += f"--- {name}\n" + f.read()
        return text

    def store(self):
        return read_store(self.lab.env, self.path)

    def wait_end(self, job, state="COMPLETED", timeout=240):
        self.cluster.wait_for(lambda: self.cluster.state(job) in FINISHED, timeout, f"the end of job {job}", every=0.3)
        found = self.cluster.job(job)
        check(found["JobState"] == state, f"job {job} ended {found['JobState']} (exit {found['ExitCode']}), not {state}")
        return found

    # --- judging

    def check_trained(self):
        """The same bits as an undisturbed run, every step exactly once, no checkpoint half made."""
        steps = LENGTHS["long" if self.base == "long" else "short"]["train.steps"]
        seen = self.steps()
        check(seen == list(range(1, steps + 1)), f"metrics hold steps {seen[:3]}...{seen[-3:]} ({len(seen)})")
        found = trained_hashes(self.lab.env, self.lab.aerie, self.path, steps)
        expected = self.lab.facts["long" if self.base == "long" else "short"]["trained"]
        check(found == expected, f"other bits than the undisturbed run: {found}, expected {expected}")
        left = [n for n in os.listdir(os.path.join(self.path, "checkpoints")) if ".tmp" in n]
        check(not left, f"left behind: {left}")

    def check_extracted(self):
        """The same rows as an undisturbed run's, each sample once, all of them whole."""
        store = self.store()
        expected = self.lab.facts["short"]["store"]
        check(store == expected, f"the store is {store}, expected {expected}")


class Lab:
    def __init__(self, aerie, source, base, cluster):
        self.aerie, self.source, self.base, self.cluster = aerie, source, base, cluster
        self.env = environment(aerie, source)
        with open(os.path.join(base, "facts.json"), encoding="utf-8") as f:
            self.facts = json.load(f)

    def preempt(self, nodes=3):
        """A job of the higher partition that wants all nodes; returns when it has ended."""
        job = self.cluster.command("sbatch", "--parsable", "-p", "high", "--exclusive", f"-N{nodes}", "-t", "1",
                                   "-o", "/dev/null", "--wrap", "true").strip()
        self.cluster.wait_for(lambda: self.cluster.state(job) in FINISHED, 90, "the job of the higher partition", every=0.2)
        check(self.cluster.state(job) == "COMPLETED", f"the job of the higher partition is {self.cluster.state(job)}")
