# SPDX-License-Identifier: Apache-2.0
"""e2e.pipeline: drives `aerie init` and `aerie run` on a tiny target and checks from outside what they leave behind.

    pipeline.py --aerie build/cpu/bin/aerie --source . [--keep DIR]

1. straight on 2 ranks: every sample in the store, checkpoints, exports, eval.json, the ledger; a second run changes nothing; with
   --fake-nvml LIBRARY the machine shows GPUs, and the record says after each phase that their memory is free;
2. all ranks killed with SIGKILL in mid-extraction, again in mid-training, the same command each time: the same bits as 1;
3. on 1 and on 4 ranks: the same bits as 1.
This driver uses the standard library only; the store is read by read_store.py in AERIE_PYTHON (h5py, xxhash).
"""
import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import tiny_target  # noqa: E402

SAMPLES, EVAL_SAMPLES, STEPS, SAVE_EVERY = 40, 6, 12, 3
LAYERS = [1, 3, 6]  # not the default, so that a wrong convention in an export shows
DRAFT_VOCAB = 64
DRAFT_INTERMEDIATE = 6144  # 1.3 M parameters, two optimizer blocks: 2 ranks share them, 4 ranks leave some without
SETTINGS = {
    "dataset.max_length": 192, "extract.layers": LAYERS, "extract.part_bytes": 256 << 10, "extract.commit_bytes": 64 << 10,
    "extract.batch_tokens": 512, "draft.vocab_size": DRAFT_VOCAB,
    "draft.intermediate_size": DRAFT_INTERMEDIATE, "train.ttt_steps": 4, "train.pack_tokens": 256,
    "train.packs_per_step": 3, "train.steps": STEPS, "train.lr": 2e-3, "train.save_every_steps": SAVE_EVERY, "train.keep": 10,
}
# Where one rank stands still until all are killed: name:rank:count:action (aerie/base/fault.hpp).
STALL_IN_EXTRACTION = "file.fdatasync:1:3:stall"  # at its third sync; rank 0 goes on
STALL_IN_TRAINING = "ckpt.after_data_fsync:0:2:stall"  # inside the second save, before the checkpoint is published
PHASES = ["prepare", "extract", "verify", "vocab", "train", "eval", "export"]


class Failed(Exception):
    pass


def check(holds, claim):
    if not holds:
        raise Failed(claim)


class Lab:
    """The programs, the input and a folder for the runs."""

    def __init__(self, aerie, source, folder, fake_nvml=None):
        self.aerie, self.source, self.folder = os.path.abspath(aerie), source, folder
        self.target = os.path.join(folder, "target")
        self.train, self.eval = os.path.join(folder, "train.jsonl.gz"), os.path.join(folder, "eval.jsonl.gz")
        tiny_target.write_target(self.target)
        tiny_target.write_conversations(self.train, SAMPLES, seed=1)
        tiny_target.write_conversations(self.eval, EVAL_SAMPLES, seed=2)
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                        OMPI_MCA_hwloc_base_binding_policy="none", PATH=os.path.dirname(self.aerie) + os.pathsep + os.environ["PATH"])
        self.env.pop("AERIE_FAULT", None)
        self.fake_gpus = fake_nvml is not None
        if fake_nvml:
            gpus = os.path.join(folder, "gpus.json")
            with open(gpus, "w", encoding="utf-8") as f:
                json.dump({"gpus": [{"uuid": "GPU-0"}, {"uuid": "GPU-1"}]}, f)
            self.env |= {"AERIE_NVML": fake_nvml, "AERIE_FAKE_NVML": gpus}
        own = os.path.join(source, ".deps", "venv", "bin", "python")
        if "AERIE_PYTHON" not in self.env and os.path.exists(own):
            self.env["AERIE_PYTHON"] = own
        if os.getuid() == 0:
            self.env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.python = self.env.get("AERIE_PYTHON", sys.executable)

    def call(self, *args, expect=0, timeout=120):
        """Runs `aerie ARGS` and returns its stdout."""
        done = subprocess.run([self.aerie, *args], env=self.env, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)
        check(done.returncode == expect,
              f"aerie {' '.join(args)} ended {done.returncode}, not {expect}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def init(self, name):
        run = os.path.join(self.folder, name)
        sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        self.call("init", run, "--target", self.target, "--conversations", self.train, "--eval-conversations", self.eval, *sets)
        return run

    def start(self, run, ranks, fault=None):
        env = dict(self.env, AERIE_FAULT=fault) if fault else self.env
        # A session of its own: what belongs to this run is found by it, whatever mpirun does to process groups.
        with open(run + ".log", "a", encoding="utf-8") as log:
            return subprocess.Popen([self.aerie, "run", run, "--ranks", str(ranks)], env=env, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, start_new_session=True)

    def run(self, run, ranks, timeout=150):
        process = self.start(run, ranks)
        try:
            code = process.wait(timeout)
        finally:
            end_session(process)
        check(code == 0, f"aerie run {run} --ranks {ranks} ended {code}; its log ends:\n{tail(run + '.log')}")

    def store(self, run):
        done = subprocess.run([self.python, os.path.join(HERE, "read_store.py"), os.path.join(run, "store")], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)
        check(done.returncode == 0, f"read_store.py: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def tail(path, size=4000):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()[-size:]


def session_members(session):
    """{pid: program name} of the living processes of a session, out of /proc."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                    found[int(pid)] = os.path.basename(f.read().split("\0", 1)[0]) or name
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def kill_ranks(process, program):
    """SIGKILL to every rank of `program`; the number killed."""
    ranks = [pid for pid, name in session_members(process.pid).items() if name == program]
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    return len(ranks)


def end_session(process):
    """Nothing of a run outlives its check."""
    for pid in session_members(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def newest_change(folder):
    times = [0.0]
    for parent, _, names in os.walk(folder):
        for path in [parent, *(os.path.join(parent, n) for n in names)]:
            try:
                times.append(os.stat(path).st_mtime)
            except FileNotFoundError:
                pass
    return max(times)


def kill_in_the_middle(lab, run, fault, program, folder, in_the_middle):
    """Holds a rank at `fault`; when `folder` is quiet and `in_the_middle()`, kills all ranks. Checks that it was a kill."""
    process = lab.start(run, 2, fault)
    try:
        deadline = time.monotonic() + 90
        while not (time.time() - newest_change(folder) > 2 and in_the_middle()):
            check(process.poll() is None,
                  f"aerie run ended {process.returncode} before {program} stood still at {fault}:\n{tail(run + '.log')}")
            check(time.monotonic() < deadline, f"{program} never stood still at {fault}:\n{tail(run + '.log')}")
            time.sleep(0.25)
        check(kill_ranks(process, program) == 2, f"{program} did not run on 2 ranks when it was to be killed")
        code = process.wait(60)
        check(code != 0, f"aerie run ended 0 although every rank of {program} was killed")
    finally:
        end_session(process)


def checkpoints(run):
    folder = os.path.join(run, "checkpoints")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    published = (n for n in names if n.startswith("step-") and n[5:].isdigit())
    return sorted(n for n in published if os.path.exists(os.path.join(folder, n, "MANIFEST.json")))


def sha256_by_vector(node):
    """{vector name: sha256} wherever an object of the JSON has both."""
    found = {}
    if isinstance(node, dict):
        if isinstance(node.get("name"), str) and isinstance(node.get("sha256"), str):
            found[node["name"]] = node["sha256"]
        for key, value in node.items():
            if isinstance(value, dict) and isinstance(value.get("sha256"), str):
                found[key] = value["sha256"]
            found |= sha256_by_vector(value)
    elif isinstance(node, list):
        for value in node:
            found |= sha256_by_vector(value)
    return found


def file_sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def result(lab, run):
    """What must not depend on ranks and kills: hashes of every vector of the last checkpoint and of the exported weights."""
    names = checkpoints(run)
    check(names and names[-1] == f"step-{STEPS:08d}", f"{run}: the last checkpoint is {names[-1:]}, not step {STEPS}")
    vectors = sha256_by_vector(json.loads(lab.call("inspect", "--json", os.path.join(run, "checkpoints", names[-1]))))
    check({"masters", "exp_avg", "exp_avg_sq"} <= set(vectors), f"aerie inspect names no SHA-256 of masters and moments: {sorted(vectors)}")
    return vectors | {"export": file_sha256(os.path.join(run, "export", "sglang", "model.safetensors"))}


def read_header(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def expected_export():
    h, i, d = tiny_target.HIDDEN, DRAFT_INTERMEDIATE, tiny_target.HIDDEN // tiny_target.HEADS
    q, kv, m = tiny_target.HEADS * d, tiny_target.KV_HEADS * d, "midlayer."
    weights = {"fc.weight": [h, 3 * h], "norm.weight": [h], "lm_head.weight": [DRAFT_VOCAB, h],
               **{m + n + ".weight": [h] for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")},
               m + "self_attn.q_proj.weight": [q, 2 * h], m + "self_attn.k_proj.weight": [kv, 2 * h],
               m + "self_attn.v_proj.weight": [kv, 2 * h], m + "self_attn.o_proj.weight": [h, q],
               m + "mlp.gate_proj.weight": [i, h], m + "mlp.up_proj.weight": [i, h], m + "mlp.down_proj.weight": [h, i]}
    return {n: ("BF16", s) for n, s in weights.items()} | {"d2t": ("I64", [DRAFT_VOCAB]), "t2d": ("BOOL", [tiny_target.VOCAB])}


def check_exports(run):
    for engine, shift in (("sglang", 1), ("vllm", 0)):  # SGLang's ids name the output of a layer, vLLM's the input
        folder = os.path.join(run, "export", engine)
        found, expected = read_header(os.path.join(folder, "model.safetensors")), expected_export()
        wrong = {n: (found.get(n), expected.get(n)) for n in found.keys() | expected.keys() if found.get(n) != expected.get(n)}
        check(not wrong, f"export/{engine}: found and expected differ: {wrong}")
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        ids = [layer - shift for layer in LAYERS]
        check(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == ids,
              f"export/{engine}: layer ids {config['eagle_config']}, not {ids}")
        check(config["architectures"] == ["LlamaForCausalLMEagle3"], f"export/{engine}: architectures {config['architectures']}")
        sizes = (config["vocab_size"], config["draft_vocab_size"])
        check(sizes == (tiny_target.VOCAB, DRAFT_VOCAB), f"export/{engine}: vocabulary sizes {sizes}")
        top = config.get("eagle_aux_hidden_state_layer_ids")
        check(top == (ids if engine == "vllm" else None), f"export/{engine}: top-level layer ids are {top}")


def ledger(run):
    with open(os.path.join(run, "ledger.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def check_ledger(run):
    state, evidence = {}, {}
    for line in ledger(run):
        if line["kind"] == "phase":
            state[line["phase"]], evidence[line["phase"]] = line["state"], line.get("evidence")
    for phase in PHASES:
        check(state.get(phase) == "complete", f"ledger: phase {phase} is {state.get(phase)}")
        check(bool(evidence[phase]), f"ledger: phase {phase} is complete without evidence")


def check_evaluation(run):
    """eval.json: both drafters with plausible ratios, and not the same one twice. (12 steps are too few to ask for better.)"""
    with open(os.path.join(run, "eval.json"), encoding="utf-8") as f:
        evaluation = json.load(f)
    for when in ("initial", "trained"):
        tau, match = evaluation[when]["tau"], evaluation[when]["match"]
        check(tau and all(1 <= t <= 1 + int(k) for k, t in tau.items()), f"eval.json: tau {when} is {tau}")
        # Evaluation drafts as far as the longest chain, 7, though training unrolls fewer steps.
        check(len(match) == max(SETTINGS["train.ttt_steps"], 7) and all(0 <= m <= 1 for m in match), f"eval.json: match {when} is {match}")
    check(evaluation["initial"]["alpha"] != evaluation["trained"]["alpha"], "eval.json: training changed nothing")


def check_whole(lab, run):
    """A finished run, from outside."""
    store = lab.store(run)
    check((store["samples"], store["done"], store["bad_checksum"]) == (SAMPLES, SAMPLES, 0), f"store: {store}")
    check(os.path.exists(os.path.join(run, "store", "COMPLETE")), "store: no COMPLETE")
    lab.call("verify", run, "--full")
    check_exports(run)
    check_ledger(run)
    check_evaluation(run)
    status = json.loads(lab.call("status", run, "--json"))
    check(isinstance(status, dict) and status, "aerie status --json printed no object")
    leftovers = [n for n in os.listdir(os.path.join(run, "checkpoints")) if ".tmp" in n or n.endswith((".old", ".bad"))]
    check(not leftovers, f"checkpoints: left behind: {leftovers}")
    return store


def straight(lab):
    run = lab.init("straight")
    lab.run(run, 2)
    store = check_whole(lab, run)
    expected = [f"step-{s:08d}" for s in range(SAVE_EVERY, STEPS + 1, SAVE_EVERY)]
    check(checkpoints(run) == expected, f"checkpoints are {checkpoints(run)}, not {expected}")
    if lab.fake_gpus:
        freed = [line["details"] for line in ledger(run) if line["kind"] == "evidence" and line["what"] == "gpu-memory"]
        check([d["phase"] for d in freed] == ["extract", "train", "eval"], f"ledger: evidence gpu-memory is {freed}")
        check(all(d["result"] == "PASS" and len(d["nodes"][0]["gpus"]) == 2 for d in freed), f"ledger: evidence gpu-memory is {freed}")
    before = {name: newest_change(os.path.join(run, name)) for name in ("store/parts", "checkpoints", "export")}
    lab.run(run, 2)
    after = {name: newest_change(os.path.join(run, name)) for name in before}
    check(before == after, f"a second run changed a finished one: {before} -> {after}")
    return result(lab, run), store


def killed(lab, reference, reference_store):
    run = lab.init("killed")

    def some_samples():
        if not os.path.exists(os.path.join(run, "store", "manifest.json")):
            return False
        store = lab.store(run)
        return 0 < store["done"] < SAMPLES

    def one_checkpoint():
        return checkpoints(run)[-1:] == [f"step-{SAVE_EVERY:08d}"]

    kill_in_the_middle(lab, run, STALL_IN_EXTRACTION, "aerie-extract", os.path.join(run, "store"), some_samples)
    survived = lab.store(run)
    check(survived["bad_checksum"] == 0, f"a sample that counts as done does not hash to its record: {survived}")
    kill_in_the_middle(lab, run, STALL_IN_TRAINING, "aerie-train", os.path.join(run, "checkpoints"), one_checkpoint)
    check(one_checkpoint(), f"after the kill the checkpoints are {checkpoints(run)}")
    lab.run(run, 2)
    store = check_whole(lab, run)
    check(store == reference_store, f"the store differs from the straight run's: {store} against {reference_store}")
    check(result(lab, run) == reference, f"killed twice: other bits\n{result(lab, run)}\n{reference}")
    attempts = [line for line in ledger(run) if line["kind"] == "attempt" and line.get("event") == "begin"]
    train = [a for a in attempts if a["program"] == "aerie-train"]
    check(len(train) == 2, f"the ledger knows {len(train)} attempts of aerie-train, not 2")


def other_ranks(lab, ranks, reference):
    run = lab.init(f"ranks{ranks}")
    lab.run(run, ranks)
    check(lab.store(run)["done"] == SAMPLES, "store")
    check(result(lab, run) == reference, f"{ranks} ranks: other bits\n{result(lab, run)}\n{reference}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--aerie", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--fake-nvml", help="a library that stands for NVML")
    parser.add_argument("--keep", help="work in this folder and leave it behind")
    options = parser.parse_args()
    folder = options.keep or tempfile.mkdtemp(prefix="aerie-e2e-")
    os.makedirs(folder, exist_ok=True)
    failures, outcome = 0, {}
    lab = Lab(options.aerie, options.source, folder, options.fake_nvml)

    def stage(name, action):
        nonlocal failures
        began = time.monotonic()
        try:
            outcome[name] = action()
            verdict = "ok"
        except Exception as e:  # every stage is reported, whatever went wrong in it
            failures += 1
            verdict = "FAILED: " + (str(e) if isinstance(e, Failed) else traceback.format_exc())
        print(f"{name}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)

    stage("straight on 2 ranks", lambda: straight(lab))
    if "straight on 2 ranks" in outcome:
        reference, store = outcome["straight on 2 ranks"]
        print("\n".join(f"  {name} {digest}" for name, digest in sorted(reference.items())))
        stage("killed in extraction and in training", lambda: killed(lab, reference, store))
        stage("1 rank", lambda: other_ranks(lab, 1, reference))
        stage("4 ranks", lambda: other_ranks(lab, 4, reference))
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
