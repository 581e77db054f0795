# SPDX-License-Identifier: Apache-2.0
"""`aerie recover` and preflight on a real Slurm, beside the one bad night of night.py: what was in the queue and what was not, whose
hold is whose, and a node that is left out under mpirun. As scenarios.py: one function per scenario, for slurm_test.py.
"""
import glob
import os
import re
import signal
import subprocess

from lab import FINISHED, SAMPLES, Run, check
from scenarios import EXTRACT_STALL, wait_stalled

LATER = "--begin=now+3600"  # a job that stays in the queue


def recover(run, *flags, expect=0):
    return run.aerie("recover", run.path, "--submit", "--site", run.path + ".env", *flags, expect=expect)


def submitted(run, before):
    """The jobs of the newest submission, which must be another than `before`."""
    lines = [x["details"]["jobs"] for x in run.ledger() if x["kind"] == "submit"]
    jobs = {line["phase"]: line["job"] for line in lines[-1]}
    check(not set(jobs.values()) & set(before.values()), f"submitted: {jobs}, before: {before}")
    return jobs


def check_items(run, **verified):
    """All four items are closed, each with evidence; that of verify says what it is asked for."""
    items = {}
    for line in run.ledger():
        if line["kind"] == "todo":
            items[line["content"].split(":")[0]] = line
    check({k: v["status"] for k, v in items.items()} == dict.fromkeys(("assess", "clear", "verify", "resume"), "done"), f"items: {items}")
    check(all(v["details"]["evidence"] for v in items.values()), f"an item is closed without evidence: {items}")
    found = items["verify"]["details"]["evidence"]
    check({k: found[k] for k in verified} == verified, f"verify's evidence is {found}, expected {verified}")


def reasons(lab, job):
    """Of each task of a job that waits: why."""
    out = lab.cluster.command("squeue", "-r", "-h", "-t", "PENDING", "-j", job, "-o", "%i %r", check=False)
    return dict(line.split(" ", 1) for line in out.splitlines())


def is_held(reason):
    return reason.startswith("JobHeld")


def recover_empty_queue(lab, launcher):
    """Extraction dies unwarned and is out of the queue: recovery submits what is left itself; no sample twice, the same bits."""
    run = Run(lab, f"empty-{launcher}", base="prepared", launcher=launcher, SUBMIT_EXTRACT="--nodes=2", SUBMIT_TRAIN="--nodes=1")
    run.arm(f"export AERIE_FAULT={EXTRACT_STALL}")
    before = run.submit()
    wait_stalled(lab, run)
    lab.cluster.command("scancel", "--full", "--signal=KILL", before["extract"])
    for job in before.values():
        lab.cluster.wait_for(lambda j=job: lab.cluster.state(j) in FINISHED, 60, f"the end of job {job}")
    run.disarm()
    done = run.store()["done"]
    check(0 < done < SAMPLES, f"{done} of {SAMPLES} samples were done when extraction had died")
    text = recover(run)
    check(f"{done} of {SAMPLES} samples verified, 0 bad" in text, text)
    jobs = submitted(run, before)
    check(list(jobs) == ["extract", "verify", "train", "eval", "export"], f"submitted: {jobs}")
    for job in jobs.values():
        run.wait_end(job)
    ended = [end and end["details"]["samples"] for _, end in run.attempts("aerie-extract")]
    check(ended == [None, SAMPLES - done], f"{done} of {SAMPLES} were there, attempts did {ended}")
    check_items(run, verified=done, missing=SAMPLES - done)
    run.check_extracted()
    run.check_trained()
    return f"{done} of {SAMPLES} had survived"


def recover_replaces_jobs(lab, launcher):
    """The queue holds training alone, but samples are damaged: its jobs are cancelled, the whole chain is submitted anew."""
    run = Run(lab, f"replaces-{launcher}", launcher=launcher, SUBMIT_TRAIN=LATER)
    before = run.submit("--from", "train")
    part = sorted(glob.glob(os.path.join(run.path, "store", "parts", "part-*.h5")))[0]
    with open(part, "r+b") as f:
        f.seek(os.path.getsize(part) // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))
    bad = run.store()["bad_checksum"]
    check(bad == 1, f"{bad} samples are damaged")
    # One that a person holds would not be held when it is submitted anew: nothing is cancelled.
    lab.cluster.command("scontrol", "uhold", before["export"])
    text = recover(run, expect=78)
    check(f"somebody holds job {before['export']}" in text, text)
    check([lab.cluster.state(j) for j in before.values()] == ["PENDING"] * len(before), "a job was cancelled")
    check(not any(map(is_held, reasons(lab, before["train"]).values())), "training is still held")
    lab.cluster.command("scontrol", "release", before["export"])
    text = recover(run)
    check("cancelled, for none of them does extract" in text, text)
    for job in before.values():
        run.wait_end(job, "CANCELLED", timeout=20)
    jobs = submitted(run, before)
    check(list(jobs) == ["extract", "verify", "train", "eval", "export"], f"submitted: {jobs}")
    run.wait_end(jobs["extract"])
    run.wait_end(jobs["verify"])
    redone = [end["details"]["samples"] for _, end in run.attempts("aerie-extract")][-1]
    check(redone == bad, f"{bad} samples were damaged, {redone} done again")
    check_items(run)
    run.check_extracted()
    check(lab.cluster.state(jobs["train"]) == "PENDING", "training does not follow")
    lab.cluster.command("scancel", *(jobs[n] for n in ("train", "eval", "export")))


def recover_array(lab, launcher):
    """An array of which one task has ended, one was put back and one was killed: held as a whole while recovery works, then let go."""
    run = Run(lab, f"array-recover-{launcher}", base="prepared", launcher=launcher, SUBMIT_EXTRACT="")
    run.arm('case "${SLURM_ARRAY_TASK_ID:-}" in 2) export AERIE_FAULT=file.fdatasync:0:1:stall ;; '
            '*) until [ -e "$RUN/go" ]; do sleep 0.1; done; exit 0 ;; esac')
    array = run.submit("--array", "3", "--to", "extract")["extract"]
    wait_stalled(lab, run, least=0)
    lab.cluster.command("scontrol", "requeue", f"{array}_1")
    open(os.path.join(run.path, "go"), "w", encoding="utf-8").close()
    run.wait_end(f"{array}_0")
    victim = lab.cluster.processes_of(lab.cluster.job(f"{array}_2")["BatchHost"], "aerie-extract")
    check(len(victim) == 1, f"task 2 is {victim}")
    os.kill(victim[0], signal.SIGKILL)
    waiting = [f"{array}_1", f"{array}_2"]
    lab.cluster.wait_for(lambda: sorted(reasons(lab, array)) == waiting, 60, "both tasks in the queue")
    run.disarm()
    # Slow in its second line, the first after the one that tells of the hold.
    with subprocess.Popen([lab.aerie, "recover", run.path, "--submit"], env=run.env | {"AERIE_FAULT": "file.fsync:*:2:slow"}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        seen = []
        while process.poll() is None:
            seen.append(reasons(lab, array))
        text = process.stdout.read()
    check(process.returncode == 0, f"recover ended {process.returncode}:\n{text}")
    held = [x for x in seen if sorted(x) == waiting and all(map(is_held, x.values()))]
    check(len(held) >= 3, f"the tasks were not held while recovery worked: {seen}\n{text}")
    check(f"job {array} was in the queue and goes on" in text, text)
    for task in waiting:
        run.wait_end(task)
    check_items(run)
    run.check_extracted()
    return f"seen {len(seen)} times, of these {len(held)} held"


def recover_held(lab, launcher):
    """What a person holds stays held; what a killed recovery holds is let go by the next, but not by one that is refused."""
    run = Run(lab, f"held-{launcher}", launcher=launcher, SUBMIT_TRAIN=LATER)
    jobs = run.submit()
    lab.cluster.command("scontrol", "uhold", jobs["eval"])
    with subprocess.Popen([lab.aerie, "recover", run.path], env=run.env | {"AERIE_FAULT": "file.fsync:*:2:stall"}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        check("stalls" in process.stdout.readline(), "recover did not stall")

        def held():
            return {name: is_held(reasons(lab, job)[job]) for name, job in jobs.items()}
        everything, of_person = dict.fromkeys(jobs, True), {name: name == "eval" for name in jobs}
        try:
            check(held() == everything, f"held by a recovery: {held()}")
            text = recover(run, expect=78)
            check("in use by aerie recover" in text and held() == everything, f"a refused recovery let go: {held()}\n{text}")
            told = {j["phase"]: j["held"] for j in run.status()["jobs"]}
            check(told == {n: "person" if n == "eval" else "recovery" for n in jobs}, f"status says {told}")
        finally:
            process.kill()
    status = run.status()
    told = {j["phase"]: j["held"] for j in status["jobs"]}
    check(told == {n: "person" if n == "eval" else "ended-recovery" for n in jobs}, f"status says {told}")
    check(re.fullmatch(r"aerie recover \S+ --submit", status["next"]["command"]), f"next: {status['next']}")
    check("which is gone and let nothing go" in run.aerie("status", run.path), "status does not tell people")
    text = recover(run)
    check(held() == of_person, f"held after the recovery: {held()}\n{text}")
    check(f"job {jobs['eval']} was held before" in text and f"scontrol release {jobs['eval']}" in text, text)
    told = {j["phase"]: j["held"] for j in run.status()["jobs"]}
    check(told == {n: "person" if n == "eval" else None for n in jobs}, f"status says {told}")
    lab.cluster.command("scancel", *jobs.values())


def leave_out_node(lab, launcher):
    """Preflight finds one node unfit, that of the job's script: extraction goes on without it and does all samples."""
    run = Run(lab, f"unfit-{launcher}", base="prepared", launcher=launcher, SUBMIT_EXTRACT="--nodes=3")
    victim = lab.cluster.names[0]

    def shared_memory(size):
        check(lab.cluster.on_node(victim, "mount", "-o", f"remount,size={size}", "/dev/shm").wait() == 0, "cannot change /dev/shm")
    shared_memory("4m")
    try:
        run.wait_end(run.submit("--to", "extract")["extract"])
    finally:
        shared_memory("512m")
    check(f"unfit, and left out: {victim}" in run.log(), "the node was not left out")
    hosts = [b["details"]["hosts"] for b, _ in run.attempts("aerie-extract")]
    check(hosts == [lab.cluster.names[1:]], f"extraction ran on {hosts}")
    states = [x["state"] for x in run.ledger() if x["kind"] == "phase" and x["phase"] == "preflight"]
    check(states[-2:] == ["failed", "complete"], f"preflight: {states}")
    run.check_extracted()


SCENARIOS = {f.__name__: f for f in (recover_empty_queue, recover_replaces_jobs, recover_array, recover_held, leave_out_node)}
