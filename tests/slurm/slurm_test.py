# SPDX-License-Identifier: Apache-2.0
"""Scenarios on a real Slurm, with the real programs and a tiny model.

    slurm_test.py --aerie BIN --source DIR --base DIR --make-base
    slurm_test.py --aerie BIN --source DIR --base DIR [--nodes N] [--keep] SCENARIO[:LAUNCHER]...

The launcher is srun unless given. One cluster serves all scenarios of a call; after each the cluster must be sound: a following job
on all nodes starts. One that is not is replaced. Ends 77 where no cluster can be started, or 1 if AERIE_REQUIRE names slurm.
"""
import argparse
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import cluster as slurm_cluster  # noqa: E402
import lab as slurm_lab  # noqa: E402
import recoveries  # noqa: E402
import scenarios  # noqa: E402

SCENARIOS = scenarios.SCENARIOS | recoveries.SCENARIOS


def tail(path, lines):
    with open(path, encoding="utf-8", errors="replace") as f:
        return "".join(f.readlines()[-lines:])


def evidence(cluster):
    """What a failed scenario leaves: the newest job logs, the queue, the controller's log."""
    logs = []
    for parent, _, names in os.walk(cluster.folder):
        if os.path.basename(parent) == "logs":
            logs += [os.path.join(parent, n) for n in names]
    text = ""
    for path in sorted(logs, key=os.path.getmtime)[-3:]:
        text += f"--- {path}\n{tail(path, 60)}"
    text += "--- squeue, sinfo\n" + cluster.command("squeue", check=False) + cluster.command("sinfo", "-N", check=False)
    return text + "--- slurmctld.log\n" + tail(f"{cluster.folder}/slurmctld.log", 30)


def run_on(cluster, options, names):
    """Runs scenarios until one fails: (how many ended, failures)."""
    lab = slurm_lab.Lab(options.aerie, options.source, options.base, cluster)
    for i, name in enumerate(names):
        name, _, launcher = name.partition(":")
        began, seen = time.monotonic(), None
        print(f"{name} ({launcher or 'srun'}): {SCENARIOS[name].__doc__.splitlines()[0]}", flush=True)
        try:
            seen = SCENARIOS[name](lab, launcher or "srun")
            cluster.check_sound()
            verdict = "ok"
        except Exception as e:  # every scenario is reported, whatever went wrong in it
            expected = (slurm_lab.pipeline.Failed, slurm_cluster.ClusterError)
            verdict = "FAILED: " + (str(e) if isinstance(e, expected) else traceback.format_exc()) + "\n" + evidence(cluster)
        print(f"  {verdict} ({time.monotonic() - began:.1f} s){': ' + seen if seen else ''}", flush=True)
        if verdict != "ok":
            return i + 1, 1
    return len(names), 0


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--aerie", "--source", "--base"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--make-base", action="store_true")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--keep", help="the cluster's folder, left behind")
    parser.add_argument("scenario", nargs="*")
    options = parser.parse_args()
    options.aerie, options.base = os.path.abspath(options.aerie), os.path.abspath(options.base)
    if options.make_base:
        slurm_lab.make_base(options.aerie, options.source, options.base)
        return 0
    lacking = slurm_cluster.missing()
    if lacking:
        print("no Slurm here, missing: " + ", ".join(lacking))
        return 1 if "slurm" in os.environ.get("AERIE_REQUIRE", "") else 77
    for name in options.scenario:
        if name.partition(":")[0] not in SCENARIOS:
            parser.error(f"no scenario {name}; known: {', '.join(SCENARIOS)}")
    slurm_cluster.isolate()
    left, failures = list(options.scenario), 0
    while left:
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
        with slurm_cluster.Cluster(options.nodes, folder=options.keep) as cluster:
            ended, failed = run_on(cluster, options, left)
        left, failures = left[ended:], failures + failed
    print(f"{len(options.scenario)} scenarios, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
