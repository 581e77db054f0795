# SPDX-License-Identifier: Apache-2.0
"""What the Slurm scenarios share: the runs they start from, submission through `aerie submit`, and looking at what came out.

The base folder holds a target, conversations, a run that is prepared, the same one extracted, verified and with its vocabulary, the
same one trained without disturbance outside Slurm, and what must come out: hashes. `make_base` fills it once; scenarios copy.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import pipeline  # noqa: E402
import tiny_target  # noqa: E402

SAMPLES, EVAL_SAMPLES = 40, 6
STEPS, SAVE_EVERY = 50, 10
SETTINGS = {
    "dataset.max_length": 192, "extract.layers": [1, 3, 6], "extract.part_bytes": 128 << 10, "extract.commit_bytes": 32 << 10,
    "extract.batch_tokens": 256, "draft.vocab_size": 64, "draft.intermediate_size": 2048, "train.ttt_steps": 3,
    "train.pack_tokens": 256, "train.lr": 2e-3, "train.keep": 50,
    "train.steps": STEPS, "train.packs_per_step": 3, "train.save_every_steps": SAVE_EVERY,
}
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


def trained_hashes(env, aerie, run):
    """SHA-256 of every vector of the last checkpoint: weights and both moments."""
    folder = os.path.join(run, "checkpoints", f"step-{STEPS:08d}")
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
    run, trained = os.path.join(folder, "extracted"), os.path.join(folder, "trained")
    sets = [w for k, v in SETTINGS.items() for w in ("--set", f"{k}={json.dumps(v)}")]
    call(env, aerie, "init", run, "--target", os.path.join(folder, "target"), "--conversations", train, "--eval-conversations",
         evaluation, *sets)
    call(env, aerie, "run", run, "--to", "prepare")
    shutil.copytree(run, os.path.join(folder, "prepared"))
    call(env, aerie, "run", run, "--to", "vocab")
    shutil.copytree(run, trained)
    call(env, aerie, "run", trained, "--to", "train", timeout=600)
    facts = {"trained": trained_hashes(env, aerie, trained), "store": read_store(env, trained)}
    check(facts["store"]["done"] == SAMPLES, f"the base store: {facts['store']}")
    with open(os.path.join(folder, "facts.json"), "w", encoding="utf-8") as f:
        json.dump(facts, f, indent=1)


class Run:
    """A copy of a base run inside a cluster's folder."""

    def __init__(self, lab, name, base="extracted", launcher="srun", **site):
        self.lab, self.cluster = lab, lab.cluster
        self.held = None
        self.env = lab.cluster.env | {k: v for k, v in lab.env.items() if k == "AERIE_PYTHON"}
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

    def aerie(self, *words, expect=0, timeout=120):
        """Both outputs of a command."""
        done = subprocess.run([self.lab.aerie, *words], env=self.env, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, check=False)
        text = done.stdout + done.stderr
        check(done.returncode == expect, f"aerie {' '.join(words)} ended {done.returncode}, not {expect}:\n{text[-4000:]}")
        return text

    def status(self):
        return json.loads(call(self.env, self.lab.aerie, "status", self.path, "--json"))

    def submit(self, *flags, expect=0):
        out = call(self.env, self.lab.aerie, "submit", self.path, "--site", self.path + ".env", *flags, expect=expect)
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
            lines = [json.loads(line) for line in f if line.endswith("\n")]
        return [line["step"] for line in lines if "step" in line]  # lines about checkpoints tell of one attempt's disk

    def step(self):
        return max(self.steps(), default=0)

    def wait_step(self, step, timeout=120):
        return self.cluster.wait_for(lambda: self.step() >= step and self.step(), timeout, f"step {step}")

    def hold(self, step):
        """Lets training come to `step`, then stops one of its ranks (SIGSTOP), so that what follows meets it in the middle however
        fast the machine is. Slurm's own warnings bring SIGCONT; after others let_go()."""
        self.wait_step(step)
        ranks = self.cluster.processes_of(self.cluster.names[1], "aerie-train")
        check(len(ranks) == 1, f"ranks on {self.cluster.names[1]}: {ranks}")
        os.kill(ranks[0], signal.SIGSTOP)
        self.held = ranks[0]
        check(self.step() < STEPS, "training was over before it was met")

    def let_go(self):
        if self.held:
            try:
                os.kill(self.held, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.held = None

    def warnings(self):
        """How often a job's script got its signal."""
        return self.log().count("got USR2")

    def wait_warning(self, count, timeout):
        """The script has been warned `count` times and passes it on: the held rank may go on."""
        self.cluster.wait_for(lambda: self.warnings() >= count, timeout, "the signal in the job's log", every=0.05)
        self.let_go()

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
        seen = self.steps()
        check(seen == list(range(1, STEPS + 1)), f"metrics hold steps {seen[:3]}...{seen[-3:]} ({len(seen)})")
        found = trained_hashes(self.lab.env, self.lab.aerie, self.path)
        expected = self.lab.facts["trained"]
        check(found == expected, f"other bits than the undisturbed run: {found}, expected {expected}")
        left = [n for n in os.listdir(os.path.join(self.path, "checkpoints")) if ".tmp" in n]
        check(not left, f"left behind: {left}")

    def check_extracted(self):
        """The same rows as an undisturbed run's, each sample once, all of them whole."""
        store = self.store()
        expected = self.lab.facts["store"]
        check(store == expected, f"the store is {store}, expected {expected}")


class Lab:
    def __init__(self, aerie, source, base, cluster):
        self.aerie, self.source, self.base, self.cluster = aerie, source, base, cluster
        self.env = environment(aerie, source)
        if base:
            with open(os.path.join(base, "facts.json"), encoding="utf-8") as f:
                self.facts = json.load(f)

    def preempt(self, run=None, nodes=3):
        """A job of the higher partition that wants all nodes; returns when it has ended. `run`: whose held rank may go on once the
        script has the signal (where Slurm signals the ranks itself it sends CONT as well)."""
        warned = run.warnings() if run else 0
        job = self.cluster.command("sbatch", "--parsable", "-p", "high", "--exclusive", f"-N{nodes}", "-t", "1",
                                   "-o", "/dev/null", "--wrap", "true").strip()

        def ended():
            if run and run.held and run.warnings() > warned:
                run.let_go()
            return self.cluster.state(job) in FINISHED
        self.cluster.wait_for(ended, 90, "the job of the higher partition", every=0.2)
        check(self.cluster.state(job) == "COMPLETED", f"the job of the higher partition is {self.cluster.state(job)}")
        if run:
            run.held = None
