# SPDX-License-Identifier: Apache-2.0
"""slurm.night: the bad night, from the crash to the exported drafter, on a real Slurm of three nodes.

    night.py --aerie BIN --source DIR --nvml libfake_nvml.so [--samples N] [--keep DIR]

37,312 short samples, three of them poisoned: a role that the template rejects, a token whose embedding row holds an Inf, one over
length. At about half of the extraction a node loses its power, with all that was in its /tmp; a foreign process takes the (fake) GPU of
another. `aerie recover --submit` is the only command that is given. Then the truth is asked for, the decision recorded, and the rest
done, preempted once. Ends 77 where no cluster can be started, or 1 if AERIE_REQUIRE names slurm.
"""
import argparse
import contextlib
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import cluster as slurm_cluster  # noqa: E402
import lab as slurm_lab  # noqa: E402
import replay_status  # noqa: E402
import tiny_target  # noqa: E402
from lab import Run, call, check  # noqa: E402

MALFORMED, NONFINITE, TOO_LONG = "night-malformed", "night-nonfinite", "night-too-long"
POISONED = {MALFORMED: "BAD_INPUT", NONFINITE: "NONFINITE", TOO_LONG: "TOO_LONG"}
STEPS = 40
SETTINGS = {
    "target.device": "cpu", "dataset.max_length": 64, "dataset.overlength": "fail", "extract.layers": [1, 3, 6],
    "extract.part_bytes": 24 << 20, "extract.commit_bytes": 1 << 20, "extract.commit_seconds": 0.5, "draft.vocab_size": 64,
    "draft.intermediate_size": 2048, "train.ttt_steps": 2, "train.pack_tokens": 256, "train.packs_per_step": 3, "train.lr": 2e-3,
    "train.steps": STEPS, "train.save_every_steps": 10, "eval.holdout": 0.0005,
}
STRICT = ("{% for m in messages %}{% if m['role'] not in ['user', 'assistant'] %}{{ raise_exception('unknown role ' + m['role']) }}"
          "{% endif %}{% endfor %}" + tiny_target.CHAT_TEMPLATE)
WORDS = "the a model draft token step rank store layer loss mask head norm 7 42 ok?".split()


def write_input(folder, samples):
    tiny_target.write_target(os.path.join(folder, "target"), infinite=b"~", chat_template=STRICT)
    rng = random.Random(3)
    poison = dict(zip(rng.sample(range(samples), 3), POISONED))
    with gzip.open(os.path.join(folder, "night.jsonl.gz"), "wt", compresslevel=1, encoding="utf-8") as f:
        for i in range(samples):
            name = poison.get(i, f"night-{i:05d}")
            answer = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))
            answer = {NONFINITE: "a ~ in it", TOO_LONG: answer + " and so on" * 10}.get(name, answer)
            role = "alien" if name == MALFORMED else "user"
            f.write(json.dumps({"id": name, "messages": [{"role": role, "content": rng.choice(WORDS)},
                                                         {"role": "assistant", "content": answer}]}) + "\n")


class Night(Run):
    """The run, in the cluster's folder."""

    def __init__(self, lab, source_folder, samples):  # pylint: disable=super-init-not-called
        self.lab, self.cluster, self.samples = lab, lab.cluster, samples
        self.held, self.jobs = None, {}
        self.path = os.path.join(lab.cluster.folder, "night")
        self.env = lab.cluster.env | {k: v for k, v in lab.env.items() if k == "AERIE_PYTHON"}
        sets = [w for k, v in SETTINGS.items() for w in ("--set", f"{k}={json.dumps(v)}")]
        call(self.env, lab.aerie, "init", self.path, "--target", os.path.join(source_folder, "target"), "--conversations",
             os.path.join(source_folder, "night.jsonl.gz"), *sets)
        self.site("srun", AERIE_GPUS=1)

    def snapshot(self):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.path, "status.json"), encoding="utf-8") as f:
            return json.load(f)
        return {}

    def todo(self):
        return {t["content"].split(":")[0]: t["status"] for t in self.status()["todo"]}

    def steps_of(self, what):
        return [x for x in self.ledger() if x["kind"] == "evidence" and x["what"] == what]


def gpus(cluster, name, processes=()):
    folder = os.path.join(cluster.folder, "gpus")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump({"gpus": [{"name": "NVIDIA H200", "memory_total": 150 << 30, "processes": list(processes)}]}, f)
    os.rename(path + ".new", path)


class Clock:
    """Says how long each part of the night took."""

    def __init__(self):
        self.began = self.last = time.monotonic()

    def __call__(self, text):
        now = time.monotonic()
        print(f"  {now - self.began:6.1f} s (+{now - self.last:.1f}) {text}", flush=True)
        self.last = now


def crash(night, clock):
    """Extraction on three nodes; node2 loses its power at about half. Returns the job."""
    job = night.submit("--to", "extract")["extract"]
    half = night.cluster.wait_for(lambda: (night.snapshot().get("done") or 0) * 2 >= 0.9 * night.samples and night.snapshot()["done"],
                                  240, "half of the samples", every=0.05)
    check(night.cluster.kill_node("node2") > 0, "nothing ran on node2")
    clock(f"node2 is gone after {half} samples were said to be done")
    night.cluster.wait_for(lambda: night.cluster.job(job)["JobState"] == "PENDING" and int(night.cluster.job(job)["Restarts"]) == 1, 90,
                           "Slurm's requeue")
    clock("Slurm has put the job back")
    return job


def take_gpu(night):
    """A service that has started itself on node3 takes its GPU. Returns (process, pid on its node)."""
    process = night.cluster.on_node("node3", "bash", "-c", "exec -a vllm-serve sleep 3000")
    space = os.readlink(f"/proc/{night.cluster.first_process('node3')}/ns/pid")

    def inside():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    if f.read().startswith("vllm-serve") and os.readlink(f"/proc/{pid}/ns/pid") == space:
                        with open(f"/proc/{pid}/status", encoding="utf-8") as s:
                            return int(re.search(r"NSpid:.*\s(\d+)$", s.read(), re.M)[1])
        return None
    pid = night.cluster.wait_for(inside, 10, "the foreign process")
    gpus(night.cluster, "node3", [{"pid": pid, "bytes": 120 << 30}])
    return process, pid


def recover(night, job, foreign, clock):
    """One command; the job goes on on the node that is left. Ends 65: three samples wait for a decision."""
    text = night.aerie("recover", night.path, "--submit", "--site", night.path + ".env", timeout=240)
    clock("recovered:\n" + "\n".join("      | " + line for line in text.splitlines()))
    found = re.search(r"verify +(\d+) of (\d+) samples verified, (\d+) bad, (\d+) failed, (\d+) missing", text)
    check(found, "recover does not say what survived")
    verified, total, bad, failed, missing = map(int, found.groups())
    check(total == night.samples and bad == 0 and failed >= 2, f"recover says {found.group(0)}")
    check(0.3 * total < verified < 0.95 * total and verified + failed + missing == total, f"recover says {found.group(0)}")
    check("node2" in text and re.search(r"about .* at the last known rate", text), "recover names neither node2 nor the time left")
    items = night.todo()
    check(items == {"assess": "done", "clear": "done", "verify": "done", "resume": "open"} or items["resume"] == "done", f"to do: {items}")
    settled = night.wait_end(job, "FAILED", timeout=240)
    check(settled["ExitCode"] == "65:0", f"the job of extraction ended {settled['ExitCode']}")
    log = night.log()
    check("unfit, and left out: node3" in log, "node3 was not left out")
    check(re.search(rf"process {foreign} .*vllm-serve", log), "the foreign process is not named in the job's log")
    check("aerie accept-missing" in log and all(name in log for name in POISONED), "the job's log does not name the samples and the command")
    check(night.todo() == {"assess": "done", "clear": "done", "verify": "done", "resume": "done"}, f"to do: {night.todo()}")
    attempts = night.attempts("aerie-extract")
    check([e and e["exit_code"] for _, e in attempts] == [None, 65], f"attempts: {night.ends('aerie-extract')}")
    check(attempts[1][0]["details"]["hosts"] == ["node1"], f"the second attempt ran on {attempts[1][0]['details']['hosts']}")
    redone = attempts[1][1]["details"]["samples"]
    check(redone <= missing, f"{missing} samples were missing and {redone} were done again")
    return verified, redone


def tell_the_truth(night):
    status = night.status()
    samples = status["samples"]
    check((samples["done"], samples["failed"], samples["missing"]) == (night.samples - 3, 3, 0), f"status says {samples}")
    failed = {f["id"]: f["reason"] for f in samples["failed_samples"]}
    check(failed == POISONED, f"status says {failed}")
    extract = next(p for p in status["phases"] if p["phase"] == "extract")
    check(extract["state"] == "failed", f"extract is {extract['state']}")
    check("accept-missing" in status["next"]["command"], f"next: {status['next']}")
    died = [a for a in status["attempts"] if a["program"] == "aerie-extract" and a["outcome"] == "died"]
    check(len(died) == 1, f"attempts: {status['attempts']}")
    text = night.aerie("verify", night.path, "--full")
    check(f"{night.samples} samples, {night.samples - 3} done, 0 pending" in text, f"verify says {text}")
    replay_status.compare(night.lab.aerie, night.env, night.path)
    train = os.path.join(os.path.dirname(night.lab.aerie), "aerie-train")
    done = subprocess.run([train, "--run", night.path], env=night.env, capture_output=True, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == 65 and "accept-missing" in done.stderr, f"aerie-train ended {done.returncode}: {done.stderr[-2000:]}")


def go_on(night, clock):
    """The decision; then verify, train (preempted once), eval, export, on two nodes again."""
    night.aerie("accept-missing", night.path, "--ids", ",".join(POISONED), "--reason", "three of 37,312, looked at by hand")
    night.cluster.bring_back("node2")
    clock("decided; node2 is back, as another machine")
    jobs = night.submit("--from", "train")
    check(set(jobs) == {"finalize", "train", "eval", "export"}, f"submitted: {jobs}")
    night.wait_step(5)
    ranks = [p for n in ("node1", "node2") for p in night.cluster.processes_of(n, "aerie-train")]
    check(len(ranks) == 2, f"training runs as {ranks}")
    os.kill(ranks[1], signal.SIGSTOP)
    night.held = ranks[1]
    clock(f"training is at step {night.step()}")
    night.lab.preempt(night)
    night.cluster.release(jobs["train"], 1)
    night.wait_end(jobs["train"])
    check(night.ends("aerie-train")[-2:] == [75, 0], f"training ended {night.ends('aerie-train')}")
    steps = night.steps()
    check(steps == list(range(1, STEPS + 1)), f"metrics hold {len(steps)} steps, {steps[:3]} ... {steps[-3:]}")
    clock("trained, preempted once")
    night.wait_end(jobs["eval"])
    night.wait_end(jobs["export"])
    clock("evaluated and exported")


def end_of_night(night):
    status = replay_status.compare(night.lab.aerie, night.env, night.path)
    states = {p["phase"]: p["state"] for p in status["phases"]}
    check(all(states[p] == "complete" for p in ("prepare", "preflight", "extract", "verify", "vocab", "train", "eval", "export")),
          f"phases: {states}")
    verified = next(p for p in status["phases"] if p["phase"] == "verify")["evidence"]
    check((verified["done"], verified["accepted_missing"]) == (night.samples - 3, 3), f"verify says {verified}")
    check(status["next"]["command"] == "" and not status["problems"], f"next {status['next']}, problems {status['problems']}")
    check(all(f["decided"] for f in status["samples"]["failed_samples"]), "a failed sample has no decision")
    check(sorted(os.listdir(os.path.join(night.path, "export"))) == ["sglang", "vllm"], "exports are missing")
    measured = {x["details"]["phase"]: x["details"] for x in night.steps_of("gpu-memory")}
    check({"train", "eval"} <= set(measured), f"memory was measured after {sorted(measured)}")
    for phase, seen in measured.items():
        check(seen["result"] == "PASS" and all(n["gpus"] for n in seen["nodes"]), f"after {phase}: {seen}")
    left = [n for x in night.steps_of("leftovers") for n in x["details"]["nodes"]]
    check(any(n["host"] == "node2" and n["rebooted_since"] for n in left), f"nobody saw that node2 was started again: {left}")
    check(any(f["command"].startswith("vllm-serve") for n in left for f in n["foreign"]), "the foreign process is not in the record")


def run(options, folder):
    clock = Clock()
    write_input(folder, options.samples)
    task_env = {"AERIE_NVML": options.nvml, "AERIE_FAKE_NVML": "{folder}/gpus/$SLURMD_NODENAME"}
    with slurm_cluster.Cluster(3, task_env=task_env) as cluster:
        for name in cluster.names:
            gpus(cluster, name)
        lab = slurm_lab.Lab(options.aerie, options.source, None, cluster)
        night = Night(lab, folder, options.samples)
        try:
            night.aerie("run", night.path, "--to", "prepare", timeout=300)
            clock("prepared")
            job = crash(night, clock)
            foreign, pid = take_gpu(night)
            verified, redone = recover(night, job, pid, clock)
            clock(f"{verified} had survived, {redone} were done again")
            tell_the_truth(night)
            clock("the truth was told")
            go_on(night, clock)
            end_of_night(night)
            check(foreign.poll() is None, "the foreign process was ended by somebody")
            foreign.kill()
        except Exception:
            print(night.log()[-6000:] + cluster.command("squeue", check=False), flush=True)
            with contextlib.suppress(Exception):
                print(night.aerie("status", night.path), night.aerie("ledger", night.path)[-6000:], flush=True)
            raise
    clock("the night is over")


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--aerie", "--source", "--nvml"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--samples", type=int, default=37312)
    options = parser.parse_args()
    for name in ("aerie", "source", "nvml"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    lacking = slurm_cluster.missing()
    if lacking:
        print("no Slurm here, missing: " + ", ".join(lacking))
        return 1 if "slurm" in os.environ.get("AERIE_REQUIRE", "") else 77
    slurm_cluster.isolate()
    with tempfile.TemporaryDirectory(prefix="aerie-night-") as folder:
        try:
            run(options, folder)
        except (slurm_lab.pipeline.Failed, slurm_cluster.ClusterError, replay_status.Difference) as e:
            print(f"FAILED: {e}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
