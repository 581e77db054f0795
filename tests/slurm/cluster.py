# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of several nodes on one machine, for tests: slurmctld, munged with a key of its own, N slurmd.

    with Cluster(nodes=3) as cluster: cluster.command("sbatch", ...)
    cluster.py [--nodes N] [COMMAND...]      a cluster around one command (default: bash), for looking around by hand

Every node has its own UTS, mount and PID namespace: own host name, own /dev/shm, own process table. Ending its first process ends
slurmd, slurmstepd and every rank on it at once, which is what a node failure is. All of a cluster lives inside one outer PID
and mount namespace, entered by isolate(): whatever becomes of the test, nothing outlives it. The network is shared, so the daemons
listen on 127.0.0.1 only, on ports that are chosen under a lock.
"""
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

PROGRAMS = ["slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "squeue", "scancel", "unshare", "mount"]
INSIDE = "AERIE_TEST_SLURM_INSIDE"
PORT_LOCK = os.path.join(tempfile.gettempdir(), "aerie-slurm-ports.lock")


class ClusterError(Exception):
    pass


def missing():
    """What keeps a cluster from starting here; empty when nothing does."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    lacking = [f"program {p}" for p in PROGRAMS if not shutil.which(p)]
    if os.geteuid() != 0:
        lacking.append("root")
    elif not lacking and subprocess.run(["unshare", "--pid", "--mount", "--uts", "--fork", "true"], check=False,
                                        capture_output=True).returncode != 0:
        lacking.append("the right to make namespaces")
    return lacking


def isolate():
    """Starts this program again inside namespaces of its own, as a child of a process that reaps orphans. Returns inside only."""
    if os.environ.get(INSIDE):
        return
    os.environ[INSIDE] = "1"
    outer = ["unshare", "--pid", "--mount", "--propagation", "private", "--fork", "--kill-child=KILL", "--mount-proc"]
    os.execvp("unshare", [*outer, sys.executable, os.path.abspath(__file__), "--reap", sys.executable, *sys.argv])


BLOCK = 1000  # ports of a cluster: the first for the daemons, the rest for MPI, which leaves each unusable for a minute


def free_ports(daemons):
    """The first port of a block on 127.0.0.1 that no cluster uses, below those that the kernel gives to clients."""
    for first in range(17000, 32000, BLOCK):
        try:
            for port in range(first, first + daemons):
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise ClusterError("no free ports")


def reap(command):
    """As process 1 of a PID namespace: runs `command`, reaps every orphan, returns the command's code."""
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return 70
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else 128 + os.WTERMSIG(status)


def be_node(name, folder):
    """As process 1 of a node's namespaces."""
    socket.sethostname(name)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", "/dev/shm"], check=True)
    subprocess.run(["mount", "--bind", f"{folder}/hosts", "/etc/hosts"], check=True)
    # As a machine of its own would have it: another one after every boot.
    subprocess.run(["mount", "--bind", f"{folder}/{name}/boot_id", "/proc/sys/kernel/random/boot_id"], check=True)
    return reap(["slurmd", "-D", "-b", "-N", name])


CONFIG = """
ClusterName=aerietest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
PlugStackConfig={folder}/plugstack.conf
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.txt
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmdSpoolDir={folder}/%n/spool
TmpFS={folder}/%n/tmp
TaskProlog={folder}/taskprolog
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
LogTimeFormat=iso8601_ms
SlurmdParameters=config_overrides
ReturnToService=1
SlurmctldTimeout=60
SlurmdTimeout=10
KillWait=5
InactiveLimit=0
MinJobAge=3600
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{extra}
{nodes}
PartitionName=low  Nodes=ALL Default=YES State=UP MaxTime=INFINITE PriorityTier=1  PreemptMode=REQUEUE GraceTime={grace}
PartitionName=high Nodes=ALL State=UP MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


class Cluster:
    """`extra`: lines for slurm.conf. `task_env`: what every task finds in its environment; $SLURMD_NODENAME stands for its node,
    {folder} for the cluster's. Needs isolate() first. Nodes are node1 ... nodeN."""

    def __init__(self, nodes=3, cpus=4, grace=10, extra="", folder=None, task_env=None):
        self.names = [f"node{i + 1}" for i in range(nodes)]
        self.cpus, self.grace, self.extra = cpus, grace, extra
        self.own_folder = folder is None
        self.task_env = task_env or {}
        self.folder = folder or tempfile.mkdtemp(prefix="aerie-slurm-")
        self.port = None
        self.daemons = {}  # name -> Popen
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "OMPI_", "PMIX_", "AERIE_"))}
        # Loopback only, and ranks that wait must not burn the cores that the others need.
        self.env |= {"SLURM_CONF": f"{self.folder}/slurm.conf", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp",
                     "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_mpi_yield_when_idle": "1",
                     "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    # --- life of the daemons

    def start(self):
        with open(PORT_LOCK, "w", encoding="utf-8") as lock:  # held until the daemons listen: two clusters may start at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.port = free_ports(1 + len(self.names))
            # Ranks of two clusters have the same names, job by job: on each other's ports they are taken for peers, and crash.
            first_mpi = 1 + len(self.names)
            self.env |= {"OMPI_MCA_btl_tcp_port_min_v4": str(self.port + first_mpi),
                         "OMPI_MCA_btl_tcp_port_range_v4": str(BLOCK - first_mpi)}
            self.start_daemons()

    def start_daemons(self):
        self.configure()
        self.daemon("munged", "munged", "--foreground", f"--socket={self.folder}/munge.socket", f"--key-file={self.folder}/munge.key",
                    f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munged.log",
                    f"--pid-file={self.folder}/munged.pid", "--num-threads=2")
        self.wait_for(lambda: os.path.exists(f"{self.folder}/munge.socket"), 10, "munged's socket")
        self.start_controller()
        for name in self.names:
            self.boot(name)
        self.wait_idle(30)

    def stop(self):
        for name in list(self.daemons):
            self.end(name)
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def configure(self):
        os.chmod(self.folder, 0o755)
        os.makedirs(f"{self.folder}/state", exist_ok=True)
        with open(os.open(f"{self.folder}/munge.key", os.O_WRONLY | os.O_CREAT, 0o400), "wb") as f:
            f.write(os.urandom(1024))
        self.write("hosts", "\n".join(f"127.0.0.1 {n}" for n in ["localhost", socket.gethostname(), *self.names]) + "\n")
        exports = {"TMPDIR": "{folder}/$SLURMD_NODENAME/tmp"} | self.task_env
        # A site's prolog may take its time, or fail: `slow-prolog` in the folder makes this one do so; `broken-prolog` once, in the
        # second step of a job.
        prolog = ["#!/bin/sh", "[ ! -e {folder}/slow-prolog ] || sleep 1",
                  '[ "$SLURM_STEP_ID" != 1 ] || ! rm {folder}/broken-prolog 2>/dev/null || exit 1',
                  *(f'echo "export {k}={v}"' for k, v in exports.items()), ""]
        self.write("taskprolog", "\n".join(prolog).replace("{folder}", self.folder))
        os.chmod(f"{self.folder}/taskprolog", 0o755)
        self.write("plugstack.conf", "")
        nodes = "\n".join(f"NodeName={n} NodeAddr=127.0.0.1 Port={self.port + 1 + i} CPUs={self.cpus} RealMemory=4000"
                          for i, n in enumerate(self.names))
        self.write("slurm.conf", CONFIG.format(host=socket.gethostname(), port=self.port, folder=self.folder, extra=self.extra,
                                               nodes=nodes, grace=self.grace))

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def daemon(self, name, *command, env=None):
        with open(f"{self.folder}/{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(command, env=env or self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                  start_new_session=True)  # close_fds keeps the lock ours

    def end(self, name):
        """SIGKILL; of a node's outer process: all that runs on the node."""
        process = self.daemons.pop(name)
        process.kill()
        process.wait()

    def start_controller(self):
        self.daemon("slurmctld", "slurmctld", "-D")

    def kill_controller(self):
        self.end("slurmctld")

    def boot(self, name):
        for part in ("spool", "tmp"):
            os.makedirs(f"{self.folder}/{name}/{part}", exist_ok=True)
        os.chmod(f"{self.folder}/{name}/tmp", 0o1777)
        self.write(f"{name}/boot_id", f"{uuid.uuid4()}\n")
        self.daemon(name, "unshare", "--uts", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL",
                    "--mount-proc", sys.executable, os.path.abspath(__file__), "--node", name, self.folder)

    def kill_node(self, name):
        """Power loss: slurmd, slurmstepd and every rank of the node are gone at once."""
        before = len(self.processes_of(name))
        self.end(name)
        shutil.rmtree(f"{self.folder}/{name}", ignore_errors=True)
        return before

    def node_state(self, name):
        return self.command("sinfo", "-h", "-N", "-p", "low", "-n", name, "-o", "%T").strip()

    def bring_back(self, name, timeout=40):
        """Boots a killed node and puts it into service."""
        time.sleep(1.1)  # Slurm tells a reboot by whole seconds
        self.boot(name)

        def in_service():
            state = self.node_state(name)
            if state.startswith("down") and not state.endswith("*"):
                self.command("scontrol", "update", f"nodename={name}", "state=resume")
            return state == "idle"
        self.wait_for(in_service, timeout, f"{name} in service")

    # --- looking

    def first_process(self, name):
        outer = self.daemons[name].pid
        with open(f"/proc/{outer}/task/{outer}/children", encoding="utf-8") as f:
            return int(f.read().split()[0])

    def processes_of(self, name, program=None):
        """Pids, as seen from here, of the node's processes (of one program)."""
        space = os.readlink(f"/proc/{self.first_process(name)}/ns/pid")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") != space:
                    continue
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    words = f.read().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[0] and (program is None or os.path.basename(words[0]) == program):
                found.append(int(pid))
        return found

    def on_node(self, name, *words, **more):
        """Starts a program on a node, beside Slurm."""
        inside = ["nsenter", "--target", str(self.first_process(name)), "--pid", "--mount", "--uts"]
        return subprocess.Popen([*inside, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)

    def command(self, *words, check=True, env=None, timeout=60, cwd=None):
        """Runs a client command; its stdout."""
        done = subprocess.run(words, env=self.env | (env or {}), capture_output=True, text=True, timeout=timeout, check=False,
                              stdin=subprocess.DEVNULL, cwd=cwd or self.folder)
        if check and done.returncode != 0:
            raise ClusterError(f"{' '.join(words)} ended {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def job(self, job):
        """`scontrol show job` as a dictionary of its KEY=VALUE words."""
        text = self.command("scontrol", "-o", "show", "job", str(job)).splitlines()[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job):
        return self.job(job)["JobState"]

    @staticmethod
    def wait_for(what, timeout, name, every=0.1):
        """The first true value of `what()`."""
        deadline = time.monotonic() + timeout
        while True:
            value = what()
            if value:
                return value
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout} s in vain for {name}")
            time.sleep(every)

    def wait_idle(self, timeout):
        def all_idle():
            states = self.command("sinfo", "-h", "-N", "-p", "low", "-o", "%T", check=False).split()
            return states == ["idle"] * len(self.names)
        self.wait_for(all_idle, timeout, "idle nodes")

    def release(self, job, restarts, timeout=60):
        """Starts a requeued job (its `restarts`-th time) now: Slurm would hold it for 121 s. Not before 3 s have gone by since
        it came back into the queue: earlier its old steps may take the new one with them."""
        def requeued():
            j = self.job(job)
            if j["JobState"] in ("FAILED", "COMPLETED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                raise ClusterError(f"job {job} is {j['JobState']} (exit {j['ExitCode']}) and was not requeued")
            return j["JobState"] == "PENDING" and int(j["Restarts"]) >= restarts
        self.wait_for(requeued, timeout, f"job {job} back in the queue")
        time.sleep(3.2)
        self.command("scontrol", "update", f"JobId={job}", "StartTime=now")

    def check_sound(self):
        """A following job on all nodes starts and ends."""
        n = len(self.names)
        out = self.command("srun", "--mpi=none", "-p", "high", "-t", "1", f"-N{n}", f"-n{n}", "hostname", timeout=40)
        if sorted(out.split()) != self.names:
            raise ClusterError(f"a job on all nodes ran on {out.split()}")


def main():
    if sys.argv[1:2] == ["--reap"]:
        return reap(sys.argv[2:])
    if sys.argv[1:2] == ["--node"]:
        return be_node(*sys.argv[2:4])
    lacking = missing()
    if lacking:
        print("no cluster here, missing: " + ", ".join(lacking), file=sys.stderr)
        return 69
    isolate()
    words = sys.argv[1:]
    nodes = int(words[1]) if words[:1] == ["--nodes"] else 3
    words = words[2:] if words[:1] == ["--nodes"] else words
    with Cluster(nodes) as cluster:
        return subprocess.run(words or ["bash"], env=cluster.env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
