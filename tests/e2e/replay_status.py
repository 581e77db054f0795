# SPDX-License-Identifier: Apache-2.0
"""The ledger replays into exactly the status shown: a replay of ledger.jsonl by the rules of docs/reference/ledger.md, written without
a look at the program's, and compared with what `aerie status --json` says.

    replay_status.py AERIE RUN          compares, and prints what was compared

    compare(aerie, env, run)            raises Difference; returns the status
    compare_copy(aerie, env, run, to)   the status of a copy of the run without its snapshot, logs and locks is the same
"""
import json
import os
import shutil
import subprocess
import sys

PHASES = ["prepare", "preflight", "extract", "verify", "vocab", "train", "eval", "export", "bench"]


class Difference(Exception):
    pass


def whole_lines(path):
    """The ledger's lines. A torn one, an object without its end or zero bytes, is passed over; other nonsense is damage."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as f:
        rows = f.read().split(b"\n")
    rows.pop()  # what follows the last newline is torn, or nothing
    lines = []
    for row in filter(None, rows):
        try:
            lines.append(json.loads(row))
        except ValueError:
            if not (row.strip(b"\0") == b"" or row.endswith(b"\0") or row.startswith(b"{")):
                raise Difference(f"{path}: {row[:80]!r} is neither a line nor a torn one") from None
    return lines


class Replay:
    def __init__(self, lines):
        self.phases, self.attempts, self.todo, self.decisions, self.failed, self.jobs = {}, [], {}, [], {}, []
        for line in lines:
            rule = getattr(self, "on_" + line["kind"].replace("-", "_"), None)  # kinds that are not known are passed over
            if rule:
                rule(line)

    def on_phase(self, line):
        if line["state"] != "complete" or line.get("evidence"):
            self.phases[line["phase"]] = (line["state"], line["time"], line.get("evidence"))

    def on_attempt(self, line):
        if line["event"] == "begin":
            self.attempts.append({"number": line["number"], "program": line["program"], "exit_code": None, "begin": line["time"], "end": None,
                                  "reason": ""})
            return
        for a in reversed(self.attempts):
            if (a["number"], a["program"], a["end"]) == (line["number"], line["program"], None):
                a |= {"exit_code": line["exit_code"], "end": line["time"], "reason": line.get("reason", "")}
                return

    def on_todo(self, line):
        self.todo[line["content"]] = {k: line.get(k, "") for k in ("content", "priority", "status")}

    def on_sample_failed(self, line):
        before = self.failed.get(line["sample"])
        still = bool(before) and before["reason"] == line["reason"] and before["decided"]
        self.failed[line["sample"]] = {"id": line["id"], "reason": line["reason"], "text": line["text"], "decided": still}

    def on_decision(self, line):
        self.decisions.append({"what": line["what"], "time": line["time"], "details": line.get("details")})
        if line["what"] == "accept-missing":
            named = line["details"]["ids"]
            for sample, failure in self.failed.items():
                failure["decided"] |= failure["id"] in named or sample in named

    def on_submit(self, line):
        details = line["details"]
        if "jobs" in details:
            self.jobs = [[j["phase"], j["job"]] for j in details["jobs"]]
            return
        array = details["replaces"].split("_")[0]
        for i, (phase, job) in enumerate(self.jobs):
            if job == array:
                new = [phase, details["job"]]
                self.jobs[i:i + 1] = [new] if array == details["replaces"] else [[phase, job], new]
                return


def status_of(aerie, env, run):
    done = subprocess.run([aerie, "status", "--json", run], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    if done.returncode != 0:
        raise Difference(f"aerie status ended {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def demand(what, replayed, shown):
    if replayed != shown:
        raise Difference(f"{what}: expected\n  {replayed}\nbut aerie status says\n  {shown}")


def compare(aerie, env, run):
    """The ledger is read before and after the status, so that a run that goes on meanwhile is compared with neither more nor less."""
    path = os.path.join(run, "ledger.jsonl")
    while True:
        lines = whole_lines(path)
        status = status_of(aerie, env, run)
        if lines == whole_lines(path):
            break
    replay = Replay(lines)
    demand("phases", [(p, *replay.phases.get(p, ("pending", None, None))) for p in PHASES],
           [(p["phase"], p["state"], p["since"], p["evidence"]) for p in status["phases"]])
    keys = ("number", "program", "exit_code", "begin", "end", "reason")
    demand("attempts", [{k: a[k] for k in keys} for a in replay.attempts], [{k: a[k] for k in keys} for a in status["attempts"]])
    for a in status["attempts"]:
        demand(f"attempt {a['number']} has an end", a["end"] is not None, a["outcome"] == "ended")
    demand("to-do items", list(replay.todo.values()), status["todo"])
    demand("decisions", replay.decisions, status["decisions"])
    demand("jobs", replay.jobs, [[j["phase"], j["job"]] for j in status["jobs"]])
    for f in (status["samples"] or {}).get("failed_samples", []):  # the store says which: also some that a killed job had no time to record
        known = replay.failed.get(f["sample"])
        demand(f"decision about {f['id']}", bool(known) and known["reason"] == f["reason"] and known["decided"], f["decided"])
        if known:
            demand(f"failed sample {f['sample']}", (known["id"], known["text"]), (f["id"], f["text"]))
    return status


def timeless(status, *runs):
    """Without what depends on where and when it is asked. The record itself may name the place where it was made."""
    text = json.dumps(status)
    for run in runs:
        text = text.replace(run, "RUN")
    out = json.loads(text)
    for key in ("time", "running", "stalled", "stall"):
        out[key] = None
    if out["checkpoint"]:
        out["checkpoint"]["age_s"] = None
    return out


def compare_copy(aerie, env, run, to):
    """Only the record and what it is about: configuration, ledger, dataset, store, vocabulary, checkpoints, results."""
    left_behind = {"status.json", "run.lock", "ledger.lock", "logs", "tb", "metrics.jsonl", "samples.jsonl", "resolved.json"}
    shutil.copytree(run, to, ignore=lambda folder, names: [n for n in names if folder == run and n in left_behind])
    here, there = (timeless(status_of(aerie, env, place), run, to) for place in (run, to))
    for key in here.keys() | there.keys():
        demand(f"{key} of a copy of the record", here.get(key), there.get(key))


if __name__ == "__main__":
    found = compare(sys.argv[1], dict(os.environ), os.path.normpath(sys.argv[2]))
    print(f"{len(found['attempts'])} attempts, {len(found['decisions'])} decisions, {len(found['todo'])} to-do items: as the ledger says")
