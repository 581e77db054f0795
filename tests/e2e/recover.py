# SPDX-License-Identifier: Apache-2.0
"""e2e.recover: `aerie recover` on one machine. What a dead attempt left is ended, and nothing else ever is.

    recover.py --aerie build/cpu/bin/aerie --source . --nvml build/cpu/lib/libfake_nvml.so

Real leftovers: a rank of a killed extraction that holds its leases. Then stand-ins, shells that call themselves aerie-extract, each
like a leftover but for one mark: another start time (its pid was given again), another boot, another host, another user (needs root),
another run, another program, another PID namespace, an attempt that is alive, one that has only just ended, one whose Slurm job runs.
GPUs are a fake NVML's.
"""
import argparse
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import replay_status  # noqa: E402
from pipeline import Failed, Lab, check, end_session, session_members  # noqa: E402

HOST = socket.gethostname()
with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as boot_file:
    BOOT = boot_file.read().strip()


CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]  # as one beside us: a process table of its own


def pid_namespace(pid="self"):
    return os.stat(f"/proc/{pid}/ns/pid").st_ino


def only_child(process):
    """Of an unshare: the first process of its namespace, by the number that it has here."""
    while process.poll() is None:
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as f:
            if found := f.read().split():
                return int(found[0])
        time.sleep(0.01)
    raise Failed("unshare ended")


def start_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rsplit(")", 1)[1].split()[19])


class Imposters:
    """Shells with the command line of an MPI program."""

    def __init__(self):
        self.all = []

    def start(self, run, program="aerie-extract", user=None, deaf=False, container=False):
        script = ("trap '' TERM; " if deaf else "") + "echo; while :; do sleep 0.05; done"
        words, path = [program, "-c", script, "--run", run], "/bin/bash"
        if container:
            words, path = [*CONTAINER, "/bin/bash", *words[1:]], None
        process = subprocess.Popen(words, executable=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, user=user, cwd="/",
                                   start_new_session=True)
        process.stdout.readline()  # its traps are set
        self.all.append(process)
        return process

    def end(self):
        for p in self.all:
            p.kill()
            p.wait()
            p.stdout.close()


def utc(ago):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - ago))


class Record:
    """Attempts written into a ledger by hand, the way docs/reference/ledger.md says."""

    def __init__(self, run):
        self.path, self.number = os.path.join(run, "ledger.jsonl"), 100
        gone = subprocess.Popen(["sleep", "60"])
        self.dead = (gone.pid, start_ticks(gone.pid))
        gone.kill()
        gone.wait()

    def append(self, **line):
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    def attempt(self, *pids, host=HOST, boot=BOOT, first=None, first_host=None, program="aerie-extract", job="", ticks=0, ended=None,
                first_space=None, space=None):
        """Ranks 1.. are `pids`; rank 0 is dead unless given, by process or (pid, start_ticks). `ended`: seconds ago, with code 76.
        `space`, `first_space`: PID namespaces of the ranks and of rank 0; as an older program wrote it without."""
        self.number += 1
        pid, begun = first if isinstance(first, tuple) else (first.pid, start_ticks(first.pid)) if first else self.dead
        mine = {} if first_space is None else {"pid_namespace": first_space}
        theirs = {} if space is None else {"pid_namespace": space}
        ranks = [{"rank": 0, "host": first_host or host, "pid": pid, "start_ticks": begun} | mine]
        ranks += [{"rank": i, "host": host, "pid": p.pid, "start_ticks": start_ticks(p.pid) + ticks} | theirs
                  for i, p in enumerate(pids, 1)]
        self.append(time=utc(3600), kind="attempt", event="begin", number=self.number, program=program, version="a test", details={
            "ranks": len(ranks), "hosts": [r["host"] for r in ranks], "boot_ids": {host: boot}, "processes": ranks},
            process={"host": first_host or host, "boot_id": boot, "pid": pid, "start_ticks": begun, "job": job, "restart_count": 0} | mine)
        if ended is not None:
            self.append(time=utc(ended), kind="attempt", event="end", number=self.number, program=program, exit_code=76, reason="a test",
                        details={})
        return self.number


class Recover:
    def __init__(self, lab, nvml):
        self.lab, self.nvml = lab, nvml
        self.tools = os.path.join(lab.folder, "tools")
        os.makedirs(self.tools)

    def prepared(self, name):
        run = self.lab.init(name)
        self.lab.call("run", run, "--to", "prepare")
        return run

    def __call__(self, run, *flags, expect=0, env=None):
        done = subprocess.run([self.lab.aerie, "recover", run, *flags], env=self.lab.env | (env or {}), capture_output=True, text=True,
                              timeout=180, stdin=subprocess.DEVNULL, check=False)
        text = done.stdout + done.stderr
        check(done.returncode == expect, f"recover {flags} ended {done.returncode}, not {expect}:\n{text[-4000:]}")
        return text

    def squeue(self, answer):
        """A stand-in for squeue, which prints `answer`, and scontrol, which holds and lets go all of it."""
        held = os.path.join(self.tools, "held")
        with contextlib.suppress(FileNotFoundError):
            os.remove(held)
        scripts = {"squeue": f"printf '%s' '{answer}' | if [ -e {held} ]; then sed 's/$/JobHeldUser|/'; else cat; fi",
                   "scontrol": f'case "$1" in hold) touch {held} ;; release) rm -f {held} ;; esac'}
        for name, script in scripts.items():
            path = os.path.join(self.tools, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\n{script}\nexit 0\n")
            os.chmod(path, 0o755)
        return {"PATH": self.tools + os.pathsep + self.lab.env["PATH"]}

    def gpus(self, *processes):
        path = os.path.join(self.lab.folder, "gpus.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"gpus": [{"name": "NVIDIA H200", "memory_total": 150 << 30,
                                 "processes": [{"pid": p.pid, "bytes": n << 30} for p, n in processes]}]}, f)
        return {"AERIE_NVML": self.nvml, "AERIE_FAKE_NVML": path}


def last_evidence(run, item):
    with open(os.path.join(run, "ledger.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    found = [x for x in lines if x["kind"] == "todo" and x["content"].startswith(item) and x["status"] == "done"]
    check(found, f"no item '{item}' is done")
    return found[-1]["details"]["evidence"]


def real_leftover(lab, recover):
    """Rank 0 is killed; rank 1 stands still and holds its leases, and mpirun does nothing about it."""
    run = recover.prepared("leftover")
    env = dict(lab.env, AERIE_FAULT="file.fdatasync:1:3:stall")
    extract = os.path.join(os.path.dirname(lab.aerie), "aerie-extract")
    with open(run + ".log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(["mpirun", "-q", "--bind-to", "none", "--oversubscribe", "-n", "2", extract, "--run", run], env=env,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while "stalls" not in open(run + ".log", encoding="utf-8").read():
            check(time.monotonic() < deadline and process.poll() is None, "rank 1 did not stall")
            time.sleep(0.05)
        ranks = {}
        for pid, name in session_members(process.pid).items():
            if name == "aerie-extract":
                with open(f"/proc/{pid}/environ", "rb") as f:
                    ranks[int(re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", f.read())[1])] = pid
        os.kill(process.pid, signal.SIGSTOP)  # a launcher that does not clear up
        os.kill(ranks[0], signal.SIGKILL)
        while ranks[0] in session_members(process.pid):  # it takes a moment to give its memory back
            time.sleep(0.02)
        text = recover(run, "--dry-run")
        check(f"process {ranks[1]} of attempt 1, aerie-extract rank 1 (its first rank is gone), holds" in text, text)
        check("would be ended" in text and os.path.exists(f"/proc/{ranks[1]}"), text)
        check("todo" not in open(os.path.join(run, "ledger.jsonl"), encoding="utf-8").read(), "a dry run wrote into the ledger")
        text = recover(run, "--grace", "5", "--resume")
        ended = last_evidence(run, "clear")["ended"]
        check([e["pid"] for e in ended] == [ranks[1]] and ended[0]["how"] in ("TERM", "KILL"), ended)
        check(any("store" in h for h in ended[0]["holds"]), ended)
        status = json.loads(lab.call("status", run, "--json"))
        check({t["status"] for t in status["todo"]} == {"done"} and len(status["todo"]) == 4, status["todo"])
        check(status["next"]["command"] == "", status["next"])
        replay_status.compare(lab.aerie, lab.env, run)
    finally:
        end_session(process)


def nothing_else(lab, recover, imposters):
    run, other = recover.prepared("marks"), recover.prepared("other")
    record = Record(run)
    start = imposters.start
    left = {"leftover": start(run), "deaf": start(run, deaf=True), "ended long ago": start(run), "relative": None}
    record.attempt(left["leftover"])
    record.attempt(left["deaf"])
    record.attempt(left["ended long ago"], ended=60)
    left.pop("relative")
    safe = {name: start(run) for name in ("recycled pid", "other boot", "other host", "rank 0 alive", "just ended", "not in the ledger")}
    first = start(run)
    safe["its rank 0"] = first
    record.attempt(safe["recycled pid"], ticks=1)
    record.attempt(safe["recycled pid"], ticks=-1)
    record.attempt(safe["other boot"], boot="00000000-0000-0000-0000-000000000000")
    record.attempt(safe["other host"], host="elsewhere")
    record.attempt(safe["rank 0 alive"], first=first)
    record.attempt(safe["just ended"], ended=1)
    safe["other run"] = start(other)
    record.attempt(safe["other run"])
    safe["other program"] = start(run, program="aerie-train")
    record.attempt(safe["other program"])
    safe["no program of aerie"] = start(run, program="python3")
    record.attempt(safe["no program of aerie"])
    safe["rank 0 elsewhere"] = start(run)
    record.attempt(safe["rank 0 elsewhere"], first_host="elsewhere")
    skipped = os.getuid() != 0
    if not skipped:
        safe["other user"] = start(run, user=pwd.getpwnam("nobody").pw_uid)
        record.attempt(safe["other user"])
    text = recover(run, "--grace", "0.5")
    for name, p in safe.items():
        check(p.poll() is None, f"the process with the mark '{name}' was ended:\n{text}")
    for name, p in left.items():
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(5)
        check(p.poll() is not None, f"'{name}' was not ended:\n{text}")
    evidence = last_evidence(run, "clear")
    check({e["pid"]: e["how"] for e in evidence["ended"]} ==
          {left["leftover"].pid: "TERM", left["deaf"].pid: "KILL", left["ended long ago"].pid: "TERM"}, evidence["ended"])
    spared = {s["pid"]: s["why"] for s in evidence["spared"]}
    named = ["other run", "other program", "no program of aerie"] + ([] if skipped else ["other user"])
    check(set(spared) == {safe[n].pid for n in named}, f"spared: {spared}")
    check("nobody" in spared[safe["other user"].pid] if not skipped else True, spared)
    check(len(evidence["rebooted_since"]) == 1 and "this host was started again since" in text, text)
    check("elsewhere: looked at when a job starts there" in text, text)
    return "another user skipped: needs root" if skipped else None


def another_namespace(lab, recover, imposters):
    """What lives in a container beside us is neither gone because its number is free here, nor the one that has its number here."""
    if subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode != 0:
        return "skipped: PID namespaces are not permitted here"
    run = recover.prepared("namespaces")
    record, here = Record(run), pid_namespace()
    first = only_child(imposters.start(run, container=True))  # rank 0: alive, and 1 in its own namespace
    mark, there = (1, start_ticks(first)), pid_namespace(first)
    check(there != here, "unshare made no namespace")
    safe = {name: imposters.start(run) for name in ("rank 0 in a container", "its number here")}
    hidden = [record.attempt(safe["rank 0 in a container"], first=mark, first_space=there, space=here)]
    record.attempt(safe["its number here"], ended=60, space=there)
    left = imposters.start(run)
    record.attempt(left, first_space=here, space=here)  # the control: rank 0 is gone from this namespace
    text = recover(run, "--grace", "0.5")
    left.wait(5)
    for name, p in safe.items():
        check(p.poll() is None, f"the process with the mark '{name}' was ended:\n{text}")
    evidence = last_evidence(run, "clear")
    check([e["pid"] for e in evidence["ended"]] == [left.pid] and evidence["hidden"] == hidden, evidence)
    check(f"attempt {hidden[0]}: ranks of it on this host cannot be seen from here" in text, text)
    outcome = {a["number"]: a for a in json.loads(lab.call("status", run, "--json"))["attempts"]}
    check(outcome[hidden[0]]["outcome"] == "unknown", outcome[hidden[0]])
    # From inside a container: the leftovers outside are not found, and not taken for gone.
    outside = imposters.start(run)
    number = record.attempt(outside, first=outside, first_space=here, space=here)
    done = subprocess.run([*CONTAINER, lab.aerie, "recover", run], env=lab.env, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False)
    check(done.returncode == 0 and f"attempt {number}: ranks of it" in done.stdout and outside.poll() is None, done.stdout + done.stderr)
    return live_in_a_container(lab, recover)


def live_in_a_container(lab, recover):
    """A real program there: its lines tell its namespace, status does not call it dead, its lock says where its number counts."""
    run = recover.prepared("container")
    extract = os.path.join(os.path.dirname(lab.aerie), "aerie-extract")
    with open(run + ".log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([*CONTAINER, extract, "--run", run], env=dict(lab.env, AERIE_FAULT="file.fdatasync:0:3:stall"),
                                   stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while "stalls" not in open(run + ".log", encoding="utf-8").read():
            check(process.poll() is None, "the extraction ended")
            time.sleep(0.05)
        there = pid_namespace(only_child(process))
        with open(os.path.join(run, "ledger.jsonl"), encoding="utf-8") as f:
            begin = [json.loads(line) for line in f if '"begin"' in line][-1]
        check(begin["process"].get("pid_namespace") == there, begin["process"])
        check([p.get("pid_namespace") for p in begin["details"]["processes"]] == [there], begin["details"]["processes"])
        attempt = json.loads(lab.call("status", run, "--json"))["attempts"][-1]
        check(attempt["outcome"] == "unknown" and "another PID namespace of this host" in json.dumps(attempt), attempt)
        text = recover(run, expect=78)
        check(f"pid {begin['process']['pid']} in PID namespace {there}" in text and process.poll() is None, text)
    finally:
        end_session(process)


def by_slurm(lab, recover, imposters):
    """A process here of a job whose first rank was elsewhere: Slurm says whether it is over."""
    run = recover.prepared("jobs")
    record = Record(run)
    p = imposters.start(run)
    record.attempt(p, first_host="elsewhere", job="77")
    record.append(time=utc(3000), kind="submit", details={"jobs": [{"phase": "extract", "job": "77", "script": "/some/where"}]})
    preflight = os.path.join(os.path.dirname(lab.aerie), "aerie-preflight")

    def clear_by_preflight(answer):
        done = subprocess.run([preflight, "--run", run], env=lab.env | recover.squeue(answer), capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL, check=False)
        check(done.returncode == 0, done.stdout + done.stderr)
    clear_by_preflight("77|77|RUNNING|0|/some/where|\n")
    check(p.poll() is None, "preflight ended a rank of a job that runs")
    other = imposters.start(run)
    record.attempt(other, first_host="elsewhere", job="79")
    clear_by_preflight("77|77|RUNNING|0|/some/where|\n")
    other.wait(5)  # 79 is not in the queue any more
    check(p.poll() is None, "preflight ended a rank of a job that runs")
    running = "77|77|RUNNING|0|/some/where|\n"
    text = recover(run, expect=78, env=recover.squeue(running))
    check("job 77 of this run is RUNNING" in text and p.poll() is None, text)
    # Held, looked at and let go: it has been put back, so its former self is over.
    text = recover(run, env=recover.squeue("77|77|PENDING|1|/some/where|\n"))
    p.wait(5)
    check("its job was started again" in text and "job 77 was in the queue and goes on" in text, text)
    q = imposters.start(run)
    record.attempt(q, first_host="elsewhere", job="78")
    text = recover(run, env=recover.squeue(""))
    q.wait(5)
    check("job 78 is no longer in the queue" in text, text)


def held_jobs(lab, recover, _):
    """Ended in the middle, a recovery lets go the jobs that it holds."""
    run = recover.prepared("held")
    record = Record(run)
    record.attempt(first_host="elsewhere", job="77")
    record.append(time=utc(3000), kind="submit", details={"jobs": [{"phase": "extract", "job": "77", "script": "/some/where"}]})
    log = os.path.join(recover.tools, "scontrol.log")
    env = lab.env | recover.squeue("77|77|PENDING|1|/some/where|\n")
    with open(os.path.join(recover.tools, "scontrol"), "w", encoding="utf-8") as f:  # slow in what comes after the hold
        held = os.path.join(recover.tools, "held")
        f.write(f'#!/bin/sh\necho "$@" >>{log}\ncase "$*" in hold*) touch {held} ;; release*) rm -f {held} ;; *"show node"*) sleep 3 ;; esac\n')
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(FileNotFoundError):
            os.remove(log)
        process = subprocess.Popen([lab.aerie, "recover", run], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + 20
        while not os.path.exists(log) or "show node" not in open(log, encoding="utf-8").read():
            check(time.monotonic() < deadline and process.poll() is None, "recover did not come to its question about nodes")
            time.sleep(0.02)
        process.send_signal(number)
        text = process.communicate(timeout=20)[0]
        calls = open(log, encoding="utf-8").read().splitlines()
        check(process.returncode == 75 and "let go" in text, f"{number}: ended {process.returncode}: {text}")
        check(calls.index("hold 77") < calls.index("release 77"), f"{number}: {calls}")
    check("todo" not in open(os.path.join(run, "ledger.jsonl"), encoding="utf-8").read(), "an item was opened by what was cut short")


def refused_leaves_no_trace(lab, recover, _):
    """While somebody works on the run, or with a wrong pid: refused, and the record is as it was. Bad numbers are usage errors."""
    run = recover.prepared("refused")
    extract = os.path.join(os.path.dirname(lab.aerie), "aerie-extract")
    with open(run + ".log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([extract, "--run", run], env=dict(lab.env, AERIE_FAULT="file.fdatasync:0:3:stall"), stdout=log,
                                   stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while "stalls" not in open(run + ".log", encoding="utf-8").read():
            check(process.poll() is None, "the extraction ended")
            time.sleep(0.05)
        before = open(os.path.join(run, "ledger.jsonl"), encoding="utf-8").read()
        text = recover(run, expect=78)
        check("is in use by aerie-extract" in text and process.poll() is None, text)
        for flags in (["--end-foreign", "1"], ["--grace", "nan"], ["--grace", "inf"], ["--resume", "--submit"]):
            recover(run, *flags, expect=2)
        check(open(os.path.join(run, "ledger.jsonl"), encoding="utf-8").read() == before, "a refused command wrote into the ledger")
    finally:
        end_session(process)
    # What is left to do may be any phase: the item is closed by whoever does it.
    for last in ("prepare", "extract", "verify", "vocab"):
        lab.call("run", run, "--to", last)
        recover(run)
    recover(run, "--resume")
    status = json.loads(lab.call("status", run, "--json"))
    check([t["status"] for t in status["todo"]] == ["done"] * 4 and not status["next"]["command"], status["todo"])


def damaged_parts(lab, recover, _):
    """A part that cannot be opened, or is gone: said, set aside, made again."""
    run = recover.prepared("parts")
    lab.call("run", run, "--to", "verify")
    good = lab.store(run)
    part = os.path.join(run, "store", "parts", "part-00000.h5")
    os.truncate(part, 1000)
    status = json.loads(lab.call("status", run, "--json"))
    check(any("part-00000" in p for p in status["problems"]) and "recover" in status["next"]["command"], status["problems"])
    text = recover(run, "--dry-run")
    check("extract" in text.split("phases to do:")[1], text)
    recover(run)
    status = json.loads(lab.call("status", run, "--json"))
    check(not status["problems"] and status["next"]["command"].startswith("aerie run"), status)
    lab.call("run", run, "--to", "verify")
    check(lab.store(run) == good, "other rows than before")
    os.remove(part)
    text = recover(run, expect=66)
    check("aerie recover --lost" in text, text)
    recover(run, "--lost")
    lab.call("run", run, "--to", "verify")
    check(lab.store(run) == good, "other rows than before")


def hostile_record(lab, recover, _):
    """Lines that hold something else than they should: 65 naming the record; status still answers."""
    run = recover.prepared("hostile")
    ledger = os.path.join(run, "ledger.jsonl")
    clean = open(ledger, encoding="utf-8").read()
    begin = {"time": utc(60), "kind": "attempt", "event": "begin", "number": 9, "program": "aerie-extract"}
    lines = [begin | {"details": {"processes": p}} for p in (0, [1], [{"pid": True}], [{"pid": "1"}])]
    lines += [begin | {"details": d} for d in ({"hosts": 1}, {"hosts": [1]}, {"boot_ids": [1]}, {"boot_ids": {HOST: True}})]
    lines += [begin | {"process": 5}, {"time": utc(60), "kind": "phase", "phase": "extract", "state": "failed", "evidence": {"inputs": 1}},
              {"time": utc(60), "kind": "todo", "content": 1, "priority": "high", "status": "open"},
              {"time": None, "kind": "decision", "what": "accept-missing"}, {"time": utc(60), "kind": "submit", "details": []}]
    for line in lines:
        with open(ledger, "w", encoding="utf-8") as f:
            f.write(clean + json.dumps(line) + "\n")
        text = recover(run, "--dry-run", expect=65)
        check("ledger: record" in text, f"{line}: {text}")
        check(json.loads(lab.call("status", run, "--json"))["problems"], f"{line}: status sees no problem")


def foreign(lab, recover, imposters):
    """Listed with what it is; ended only when its pid is given, and only when it is on a GPU."""
    run = recover.prepared("foreign")
    Record(run)
    holder, bystander = imposters.start("/", program="vllm"), imposters.start("/", program="editor")
    env = recover.gpus((holder, 120))
    text = recover(run, env=env)
    check(f"foreign: process {holder.pid} of {pwd.getpwuid(os.getuid()).pw_name} on GPU 0, 120 GiB: vllm" in text, text)
    check("left alone" in text and holder.poll() is None, text)
    evidence = last_evidence(run, "clear")
    check(evidence["foreign"][0]["pid"] == holder.pid and evidence["gpus"][0]["bytes_used"] == 120 << 30, evidence)
    text = recover(run, "--end-foreign", str(bystander.pid), env=env, expect=2)
    check(f"--end-foreign {bystander.pid}: no foreign process with this pid is on a GPU" in text and bystander.poll() is None, text)
    text = recover(run, "--dry-run", "--end-foreign", str(holder.pid), env=env)
    check("would be ended" in text and holder.poll() is None, text)
    recover(run, "--end-foreign", str(holder.pid), env=env)
    holder.wait(5)
    evidence = last_evidence(run, "clear")
    check([f["pid"] for f in evidence["foreign_ended"]] == [holder.pid] and evidence["gpus"][0]["bytes_used"] == 0, evidence)
    check(bystander.poll() is None, "a bystander was ended")


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--aerie", "--source", "--nvml"):
        parser.add_argument(flag, required=True)
    args = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="aerie-recover-") as folder:
        os.chmod(folder, 0o755)
        lab = Lab(args.aerie, args.source, folder)
        for name in ("squeue", "scontrol"):  # a real one would be asked
            if shutil.which(name):
                lab.env["SLURM_CONF"] = "/dev/null"
        recover = Recover(lab, os.path.abspath(args.nvml))
        for case in (real_leftover, nothing_else, another_namespace, by_slurm, held_jobs, refused_leaves_no_trace, damaged_parts, hostile_record,
                     foreign):
            imposters = Imposters()
            began = time.monotonic()
            try:
                said = case(lab, recover) if case is real_leftover else case(lab, recover, imposters)
                verdict = "ok" + (f", {said}" if said else "")
            except Failed as e:
                failures += 1
                verdict = f"FAILED: {e}"
            finally:
                imposters.end()
            print(f"{case.__name__}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
