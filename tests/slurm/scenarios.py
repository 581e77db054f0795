# SPDX-License-Identifier: Apache-2.0
"""What must hold on a real Slurm, one function per scenario. Each gets the lab and the launcher; each ends with its own assertion on
hashes, samples or steps. The driver (slurm_test.py) checks afterwards that the cluster is sound.
"""
import json
import os
import re
import signal
import time

import lab as slurm_lab
from lab import SAMPLES, SAVE_EVERY, Run, check

EXTRACT_STALL = "file.fdatasync:1:3:stall"  # rank 1 stands still at its third sync, with samples committed


def resume_without_loss(run, job, restarts):
    """After a warned stop: the attempt ended 75, its last step is published, and the next one begins there."""
    run.cluster.release(job, restarts)
    ends = run.ends("aerie-train")
    check(ends[-1] == 75, f"the attempt ended {ends}, not 75")
    stopped = run.attempts("aerie-train")[-1][1]["details"]["done"]
    published = [x["step"] for x in run.ledger() if x["kind"] == "checkpoint"]
    check(stopped in (*published, 0), f"stopped after step {stopped}, published {published}")
    return stopped


def check_no_step_lost(run, stopped):
    """`stopped`: the step after which each attempt but the last ended."""
    check(run.started_at()[1:] == stopped, f"attempts stopped after steps {stopped} and began at {run.started_at()}")


# 1. --- the chain


def chain(lab, launcher):
    """extract -> finalize -> train -> eval -> export over 3 nodes; status shows it; a finished job that runs again changes nothing."""
    run = Run(lab, f"chain-{launcher}", base="prepared", launcher=launcher, SUBMIT_EXTRACT="--nodes=3", SUBMIT_TRAIN="--nodes=3",
              SUBMIT_EVAL="--nodes=3")
    jobs = run.submit()
    check(list(jobs) == ["extract", "finalize", "train", "eval", "export"], f"aerie submit printed {jobs}")
    recorded = [x for x in run.ledger() if x["kind"] == "submit"][-1]["details"]["jobs"]
    check([j["job"] for j in recorded] == list(jobs.values()), f"the ledger has {recorded}")
    run.submit(expect=78)  # its jobs are in the queue: a second chain is refused
    jobs = dict((r["phase"], r["job"]) for r in recorded)
    for job in jobs.values():
        run.wait_end(job)
    status = json.loads(slurm_lab.call(lab.env, lab.aerie, "status", run.path, "--json"))
    states = {p["phase"]: p["state"] for p in status["phases"]}
    wanted = ["preflight", "extract", "verify", "vocab", "train", "eval", "export"]
    check(all(states[p] == "complete" for p in wanted), f"aerie status: {states}")
    check(status["samples"]["done"] == SAMPLES, f"aerie status: {status['samples']}")
    for program in ("aerie-extract", "aerie-train", "aerie-eval"):
        hosts = run.attempts(program)[-1][0]["details"]["hosts"]
        check(sorted(hosts) == lab.cluster.names[:3], f"{program} ran on {hosts}")
    run.check_extracted()
    run.check_trained()
    slurm_lab.pipeline.check_evaluation(run.path)
    check(os.path.exists(os.path.join(run.path, "export", "sglang", "model.safetensors")), "no export")
    before = run.ledger()
    lab.cluster.command("scontrol", "requeue", jobs["train"])
    lab.cluster.release(jobs["train"], 1)
    run.wait_end(jobs["train"])
    after = [x for x in run.ledger()[len(before):] if x["kind"] != "submit"]
    check(not after, f"a finished job that ran again wrote {after}")


def failing_phase(lab, launcher):
    """A phase that fails cancels what depends on it."""
    run = Run(lab, f"failing-{launcher}", base="prepared", launcher=launcher)
    run.arm("export AERIE_FAULT=file.fdatasync:0:1:eio")
    jobs = run.submit()
    found = run.wait_end(jobs["extract"], "FAILED")
    check(found["ExitCode"] == "74:0", f"extract ended {found['ExitCode']}")
    for name in ("finalize", "train", "eval", "export"):
        run.wait_end(jobs[name], "CANCELLED", timeout=60)
    check(not os.path.exists(os.path.join(run.path, "store", "COMPLETE")), "COMPLETE after a failed extraction")
    check(not run.attempts("aerie-train"), "training began after a failed extraction")


def stop_file(lab, launcher):
    """RUN/stop: the running job saves and ends 75, is not requeued; a queued one ends 0 at once; without it the run goes on."""
    run = Run(lab, f"stop-{launcher}", launcher=launcher)
    jobs = run.submit("--to", "train")
    run.hold(3)
    stop = os.path.join(run.path, "stop")
    open(stop, "w", encoding="utf-8").close()
    time.sleep(2.2)  # files are looked at every 2 s
    run.let_go()
    found = run.wait_end(jobs["train"], "FAILED")
    check(found["ExitCode"] == "75:0" and found["Restarts"] == "0", f"{found['ExitCode']}, restarts {found['Restarts']}")
    stopped = run.attempts("aerie-train")[-1][1]["details"]["done"]
    queued = lab.cluster.command("sbatch", "--parsable", os.path.join(run.path, "jobs", "train.sbatch")).strip()
    run.wait_end(queued)
    check(len(run.attempts("aerie-train")) == 1, "a queued job trained in spite of RUN/stop")
    os.remove(stop)
    jobs = run.submit("--to", "train")
    run.wait_end(jobs["train"])
    check_no_step_lost(run, [stopped])
    run.check_trained()


# 2. --- the time limit


def time_limit(lab, launcher):
    """Signal, checkpoint, requeue, resume to the end: no step lost, the same bits."""
    run = Run(lab, f"limit-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=3 --time=1 --signal=B:USR2@20")
    job = run.submit("--to", "train")["train"]
    run.hold(3)
    run.wait_warning(1, 70)
    stopped = [resume_without_loss(run, job, 1)]
    for restart in range(2, 8):  # on a slow machine the limit may come again
        lab.cluster.wait_for(lambda r=restart: lab.cluster.state(job) in slurm_lab.FINISHED or
                             int(lab.cluster.job(job)["Restarts"]) >= r, 120, "a requeue or the end", every=0.3)
        if lab.cluster.state(job) in slurm_lab.FINISHED:
            break
        stopped.append(resume_without_loss(run, job, restart))
    run.wait_end(job)
    reason = run.attempts("aerie-train")[0][1]["reason"]
    check("signal USR2" in reason, f"the first attempt ended because of: {reason}")
    check_no_step_lost(run, stopped)
    run.check_trained()
    return f"stopped after steps {stopped}: {reason}"


# 3. --- preemption


def preemption(lab, launcher):
    """By a higher partition, with REQUEUE and grace time: the ranks are warned, no step is lost, the same bits."""
    run = Run(lab, f"preempted-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=3")
    job = run.submit("--to", "train")["train"]
    run.hold(3)
    lab.preempt(run)
    stopped = [resume_without_loss(run, job, 1)]
    run.wait_end(job)
    check(stopped[0] >= 3, f"stopped after step {stopped[0]}")
    check_no_step_lost(run, stopped)
    run.check_trained()
    return f"stopped after step {stopped[0]}: {run.attempts('aerie-train')[0][1]['reason']}"


def with_user_signal(scenario):
    """The scenario with preempt_send_user_signal, which sends the job's own --signal at the start of the grace time."""
    def changed(lab, launcher):
        path = f"{lab.cluster.folder}/slurm.conf"
        with open(path, encoding="utf-8") as f:
            before = f.read()
        try:
            lab.cluster.write("slurm.conf", before.replace("ClusterName", "SlurmctldParameters=preempt_send_user_signal\nClusterName"))
            lab.cluster.command("scontrol", "reconfigure")
            return scenario(lab, launcher)
        finally:
            lab.cluster.write("slurm.conf", before)
            lab.cluster.command("scontrol", "reconfigure")
    changed.__doc__ = scenario.__doc__
    return changed


def preemption_user_signal(lab, launcher):
    """Preemption with preempt_send_user_signal: USR2 comes through the script; no step is lost, the same bits."""
    return with_user_signal(preemption)(lab, launcher)


def preemption_unwarned(lab, launcher):
    """mpirun without preempt_send_user_signal: about a second; goes on from the last periodic checkpoint, the same bits."""
    check(launcher == "mpirun", "srun warns its ranks")
    run = Run(lab, "unwarned", launcher="mpirun", SUBMIT_TRAIN="--nodes=3")
    # TERM reaches the ranks of the other nodes with their orted, so that a tiny checkpoint may still be saved. One of a real size is
    # not: here the save that follows the periodic one does not come to its end.
    run.arm("export AERIE_FAULT=ckpt.after_tmp_dir:0:2:stall")
    job = run.submit("--to", "train")["train"]
    run.hold(SAVE_EVERY + 3)
    lab.preempt(run)
    run.disarm()
    lab.cluster.release(job, 1)
    reached = run.step()
    run.wait_end(job)
    check(run.ends("aerie-train") == [None, 0], f"attempts ended {run.ends('aerie-train')}, not by being killed and then well")
    check("launcher exit 205" in run.log(), "mpirun did not end with 205")
    began = run.started_at()
    check(len(began) == 2 and began[1] % SAVE_EVERY == 0, f"attempts began at {began}")
    check(0 <= reached - began[1] <= SAVE_EVERY, f"step {reached} was reached, the next attempt began at {began[1]}")
    run.check_trained()
    return f"lost {reached - began[1]} steps of at most {SAVE_EVERY}"


# 4. --- a node dies


def node_dies_in_training(lab, launcher):
    """kill -9 of one node's daemons and ranks: requeued by Slurm, goes on with the nodes that are left, at most save_every lost."""
    run = Run(lab, f"node-train-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=1-3")
    job = run.submit("--to", "train")["train"]
    run.hold(SAVE_EVERY + 3)
    victim = lab.cluster.names[2]
    check(lab.cluster.processes_of(victim, "aerie-train"), f"no rank on {victim}")
    lab.cluster.kill_node(victim)
    lab.cluster.release(job, 1, timeout=150)
    reached = run.step()
    run.wait_end(job)
    began, ranks = run.started_at(), [b["details"]["ranks"] for b, _ in run.attempts("aerie-train")]
    lab.cluster.bring_back(victim)
    check(ranks == [3, 2], f"attempts ran on {ranks} ranks")
    check(len(began) == 2 and 0 <= reached - began[1] <= SAVE_EVERY, f"step {reached} was reached, attempts began at {began}")
    run.check_trained()
    return f"lost {reached - began[1]} steps of at most {SAVE_EVERY}; 3 nodes, then 2"


def node_dies_in_extraction(lab, launcher):
    """The same in extraction: what was committed stays, only what is missing is done, no sample twice."""
    run = Run(lab, f"node-extract-{launcher}", base="prepared", launcher=launcher)
    run.arm(f"export AERIE_FAULT={EXTRACT_STALL}")
    job = run.submit("--to", "extract")["extract"]
    wait_stalled(lab, run)
    victim = next(n for n in lab.cluster.names if not lab.cluster.processes_of(n, "srun")
                  and not lab.cluster.processes_of(n, "mpirun") and lab.cluster.processes_of(n, "aerie-extract"))
    lab.cluster.kill_node(victim)
    run.disarm()
    lab.cluster.release(job, 1, timeout=150)
    done = run.store()
    run.wait_end(job)
    lab.cluster.bring_back(victim)
    again = [end["details"]["samples"] for _, end in run.attempts("aerie-extract") if end and end["exit_code"] == 0]
    check(0 < done["done"] < SAMPLES and done["bad_checksum"] == 0, f"when the node had died the store was {done}")
    check(again == [SAMPLES - done["done"]], f"{done['done']} of {SAMPLES} were there, {again} were done afterwards")
    ranks = [b["details"]["ranks"] for b, _ in run.attempts("aerie-extract")]
    check(ranks == [3, 2], f"attempts ran on {ranks} ranks")
    run.check_extracted()
    return f"{done['done']} of {SAMPLES} survived, {again[0]} done afterwards; 3 nodes, then 2"


def wait_stalled(lab, run, least=1):
    """Until a store is there in which `least` samples are done, and nothing changes any more."""
    def quiet():
        if not os.path.exists(os.path.join(run.path, "store", "manifest.json")):
            return False
        return time.time() - slurm_lab.pipeline.newest_change(os.path.join(run.path, "store")) > 2 and run.store()["done"] >= least
    lab.cluster.wait_for(quiet, 90, "extraction to stand still", every=0.3)


# 5. --- one rank dies


def rank_dies(lab, launcher):
    """SIGKILL of one rank, as for want of memory: the step ends in seconds, the job is requeued and goes on."""
    run = Run(lab, f"rank-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=3")
    job = run.submit("--to", "train")["train"]
    run.wait_step(SAVE_EVERY + 2)
    victim = lab.cluster.processes_of(lab.cluster.names[1], "aerie-train")
    check(len(victim) == 1, f"ranks on {lab.cluster.names[1]}: {victim}")
    os.kill(victim[0], signal.SIGKILL)
    killed = time.monotonic()
    lab.cluster.wait_for(lambda: int(lab.cluster.job(job)["Restarts"]) == 1, 60, "the requeue")
    took = time.monotonic() - killed
    lab.cluster.release(job, 1)
    reached = run.step()
    run.wait_end(job)
    began = run.started_at()
    check(took < 30, f"{took:.0f} s went by until the requeue")
    check(len(began) == 2 and 0 <= reached - began[1] <= SAVE_EVERY, f"step {reached} was reached, attempts began at {began}")
    run.check_trained()
    return f"requeued {took:.1f} s after the kill, lost {reached - began[1]} steps of at most {SAVE_EVERY}"


# 6. --- the controller dies


def controller_dies(lab, launcher):
    """slurmctld killed and started again in mid-run: nothing changes."""
    run = Run(lab, f"controller-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=3")
    job = run.submit("--to", "train")["train"]
    submitted = time.monotonic()
    run.hold(3)
    time.sleep(max(0.0, 6 - (time.monotonic() - submitted)))  # the controller saves a new job after up to 5 s
    lab.cluster.kill_controller()
    killed_at = run.step()
    run.let_go()
    run.wait_step(killed_at + 2)  # training goes on without a controller
    lab.cluster.start_controller()
    lab.cluster.wait_for(lambda: "UP" in lab.cluster.command("scontrol", "ping", check=False), 30, "slurmctld")
    found = run.wait_end(job)
    check(found["Restarts"] == "0" and run.ends("aerie-train") == [0], f"{found['Restarts']} restarts, {run.ends('aerie-train')}")
    run.check_trained()
    return f"killed at step {killed_at}"


# 7. --- an array on one store


def array(lab, launcher):
    """Extraction as an array of four tasks on one store, one of them killed: complete, no sample twice."""
    run = Run(lab, f"array-{launcher}", base="prepared", launcher=launcher, SUBMIT_EXTRACT="")
    # Task 2 takes a part and stands still in it; only then the others begin, so that it holds one however fast they are.
    run.arm('[ "${SLURM_ARRAY_TASK_ID:-}" = 2 ] && export AERIE_FAULT=file.fdatasync:0:1:stall || '
            'until [ -e "$RUN/go" ]; do sleep 0.1; done')
    jobs = run.submit("--array", "4", "--to", "extract")
    wait_stalled(lab, run, least=0)
    open(os.path.join(run.path, "go"), "w", encoding="utf-8").close()
    task = f"{jobs['extract']}_2"
    tasks = [f"{jobs['extract']}_{t}" for t in range(4)]
    for other in tasks:
        if other != task:
            run.wait_end(other)
    run.disarm()
    node = lab.cluster.job(task)["BatchHost"]
    victim = lab.cluster.processes_of(node, "aerie-extract")
    check(len(victim) == 1 and lab.cluster.state(task) == "RUNNING", f"task 2 is {lab.cluster.state(task)} with {victim}")
    os.kill(victim[0], signal.SIGKILL)
    lab.cluster.wait_for(lambda: int(lab.cluster.job(task)["Restarts"]) == 1, 60, "the requeue of task 2")
    check(all(int(lab.cluster.job(t)["Restarts"]) == (t == task) for t in tasks), "another task was requeued as well")
    lab.cluster.release(task, 1)
    done = run.store()["done"]
    run.wait_end(task)
    ended = [(b["process"]["job"], e["details"]["samples"]) for b, e in run.attempts("aerie-extract") if e]
    check(0 < done < SAMPLES, f"{done} samples were done when task 2 had died")
    check(ended[-1] == (task, SAMPLES - done), f"{done} of {SAMPLES} were there; attempts: {ended}")
    check(sum(n > 0 for _, n in ended[:-1]) >= 2, f"the tasks did not share the work: {ended}")
    states = [x["state"] for x in run.ledger() if x["kind"] == "phase" and x["phase"] == "extract"]
    check(states[-1] == "complete", f"extract: {states}")
    run.check_extracted()
    return f"samples by task {ended}, {done} done when task 2 had died"


# 8. --- many preemptions, few deaths


def ten_preemptions(lab, launcher):
    """Ten preemptions in a row, each after some progress: the job finishes, no step lost, the same bits."""
    run = Run(lab, f"ten-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=3")
    job = run.submit("--to", "train")["train"]
    stopped = []
    for restart in range(1, 11):
        run.hold((stopped or [0])[-1] + 1)
        lab.preempt(run)
        stopped.append(resume_without_loss(run, job, restart))
    found = run.wait_end(job)
    check(found["Restarts"] == "10", f"{found['Restarts']} restarts")
    check(run.ends("aerie-train") == [75] * 10 + [0], f"attempts ended {run.ends('aerie-train')}")
    check_no_step_lost(run, stopped)
    run.check_trained()
    return f"stopped after steps {stopped}"


def three_deaths(lab, launcher, base, name, program, fault):
    run = Run(lab, f"deaths-{name}-{launcher}", base=base, launcher=launcher, SUBMIT_TRAIN="--nodes=2", SUBMIT_EXTRACT="--nodes=2")
    run.arm(f"export AERIE_FAULT={fault}")
    job = run.submit("--to", name)[name]
    for restart in (1, 2):
        lab.cluster.release(job, restart, timeout=120)
    found = run.wait_end(job, "FAILED")
    check((found["ExitCode"], found["Restarts"]) == ("93:0", "2"), f"exit {found['ExitCode']} after {found['Restarts']} restarts")
    check(len(run.attempts(program)) == 3, f"{len(run.attempts(program))} attempts")
    return run


def deaths_in_training(lab, launcher):
    """Three deaths without progress: 93, and no requeue. After a repair and --reset-attempts it goes on to the same bits."""
    run = three_deaths(lab, launcher, "extracted", "train", "aerie-train", "ckpt.after_tmp_dir:0:1:kill")
    run.disarm()
    run.wait_end(run.submit("--to", "train", "--reset-attempts")["train"])
    run.check_trained()


def deaths_in_extraction(lab, launcher):
    """Three deaths without progress in extraction: 93, and no requeue."""
    run = three_deaths(lab, launcher, "prepared", "extract", "aerie-extract", "file.fdatasync:*:1:kill")
    check(run.store()["done"] == 0, f"there was progress: {run.store()}")


# --- more of the rules


def drill(lab, launcher):
    """scancel --signal=USR2 --batch: the drill. Also while Slurm and the programs are starting: no step lost, never 140."""
    run = Run(lab, f"drill-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=2")
    lab.cluster.write("slow-prolog", "")  # a signal in the middle of it must not reach it
    job = run.submit("--to", "train")["train"]
    stopped = []
    for restart, moment in enumerate(("preflight", "start", "step"), 1):
        wait_moment(lab, run, moment, (stopped or [0])[-1])
        lab.cluster.command("scancel", "--signal=USR2", "--batch", job)
        run.wait_warning(restart, 30)
        lab.cluster.release(job, restart)
        if len(run.started_at()) > len(stopped):
            stopped.append(run.attempts("aerie-train")[-1][1]["details"]["done"])
    run.wait_end(job)
    os.remove(os.path.join(lab.cluster.folder, "slow-prolog"))
    check("prolog" not in run.log(), "a warning hit a task prolog")
    check(all(code in (75, 0) for code in run.ends("aerie-train")), f"attempts ended {run.ends('aerie-train')}")
    check_no_step_lost(run, stopped)
    run.check_trained()
    return f"stopped after steps {stopped}"


def failed_launch(lab, launcher):
    """A launch that fails before the program runs is made again at once: no requeue, and no attempt that counts."""
    run = Run(lab, f"launch-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=2")
    lab.cluster.write("broken-prolog", "")
    job = run.submit("--to", "train")["train"]
    found = run.wait_end(job)
    check(found["Restarts"] == "0", f"{found['Restarts']} restarts")
    check("the launch failed (try 1)" in run.log(), "no launch failed")
    check(run.ends("aerie-train") == [0], f"attempts ended {run.ends('aerie-train')}")
    run.check_trained()


def wait_moment(lab, run, moment, step):
    """Since the last warning: the preflight of the job has been started; its training has; a step more is done."""
    if moment == "step":
        run.hold(step + 2)
        return
    begun = {"preflight": " start .*aerie-preflight --run", "start": " start .*aerie-train --run"}[moment]
    lab.cluster.wait_for(lambda: re.search(begun, run.log().rpartition("got USR2")[2]), 60, moment, every=0.02)


def cancel(lab, launcher):
    """scancel: saved, cancelled, not requeued; the chain behind it is cancelled."""
    run = Run(lab, f"cancel-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=2")
    jobs = run.submit()
    run.hold(3)
    lab.cluster.command("scancel", jobs["train"])
    found = run.wait_end(jobs["train"], "CANCELLED")
    check(found["Restarts"] == "0", f"{found['Restarts']} restarts")
    run.wait_end(jobs["export"], "CANCELLED")
    jobs = run.submit("--to", "train")
    run.wait_end(jobs["train"])
    run.check_trained()


def no_requeue(lab, launcher):
    """A job with Requeue=0: a new one takes its place, and what waited for the old one waits for the new one."""
    run = Run(lab, f"norequeue-{launcher}", launcher=launcher, SUBMIT_TRAIN="--nodes=2 --no-requeue")
    jobs = run.submit()
    run.hold(3)
    lab.cluster.command("scancel", "--signal=USR2", "--batch", jobs["train"])
    run.wait_warning(1, 30)
    found = run.wait_end(jobs["train"], "FAILED")
    check(found["ExitCode"] == "75:0", f"exit {found['ExitCode']}")
    run.wait_end(jobs["export"])
    check(len(run.attempts("aerie-train")) == 2, f"{len(run.attempts('aerie-train'))} attempts")
    check_no_step_lost(run, [run.attempts("aerie-train")[0][1]["details"]["done"]])
    run.check_trained()


SCENARIOS = {f.__name__: f for f in (
    chain, failing_phase, stop_file, time_limit, preemption, preemption_user_signal, preemption_unwarned, node_dies_in_training,
    node_dies_in_extraction, rank_dies, controller_dies, array, ten_preemptions, deaths_in_training, deaths_in_extraction, drill,
    failed_launch, cancel, no_requeue)}
