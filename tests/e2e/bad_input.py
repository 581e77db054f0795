# SPDX-License-Identifier: Apache-2.0
"""e2e.bad_input: what bad input gets, through the programs that users use: message, exit code, and what goes on afterwards.

    bad_input.py --aerie build/cpu/bin/aerie --source .

Cases: a shard that is missing, a weight file cut short, a role that the template rejects (named, decided, gone on with), a store of another
target, a checkpoint of another configuration, two jobs on one run, a full disk, a read-only file system (the last two need root; skipped and
counted otherwise).
"""
import argparse
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tiny_target  # noqa: E402
from pipeline import Failed, Lab, check, end_session  # noqa: E402


def ends(lab, args, code, *parts, program=None):
    """Runs a program and demands exit code and, in what it prints, every one of `parts`."""
    done = subprocess.run([program or lab.aerie, *args], env=lab.env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    text = done.stdout + done.stderr
    check(done.returncode == code, f"{args} ended {done.returncode}, not {code}:\n{text[-3000:]}")
    for part in parts:
        check(part in text, f"{args} does not say '{part}':\n{text[-3000:]}")


def other_target(lab, name):
    folder = os.path.join(lab.folder, name)
    shutil.copytree(lab.target, folder)
    return folder


def missing_shard(lab, prepared):
    target = other_target(lab, "shards")
    one = os.path.join(target, "model.safetensors")
    with open(one, "rb") as f:
        names = [n for n in json.loads(f.read(int.from_bytes(f.read(8), "little"))) if n != "__metadata__"]
    os.rename(one, os.path.join(target, "model-00001-of-00002.safetensors"))
    places = {n: "model-00001-of-00002.safetensors" for n in names} | {names[-1]: "model-00002-of-00002.safetensors"}
    with open(os.path.join(target, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": places}, f)
    ends(lab, ["run", prepared, "--target.path", target, "--to", "extract"], 66, "model-00002-of-00002.safetensors", names[-1])


def cut_short(lab, prepared):
    target = other_target(lab, "cut")
    path = os.path.join(target, "model.safetensors")
    os.truncate(path, os.path.getsize(path) - 1000)
    ends(lab, ["run", prepared, "--target.path", target, "--to", "extract"], 65, path, "data ends at")


def strict_lab(lab, samples=6):
    """The lab with a template that rejects a role, and a few conversations, the third of which ("alien-role") has it."""
    target = other_target(lab, "strict")
    path = os.path.join(target, "tokenizer_config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config["chat_template"] = ("{% for m in messages %}{% if m['role'] not in ['system', 'user', 'assistant'] %}"
                               "{{ raise_exception('unknown role ' + m['role']) }}{% endif %}{% endfor %}" + config["chat_template"])
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    conversations = os.path.join(lab.folder, "roles.jsonl")
    with gzip.open(lab.train, "rt", encoding="utf-8") as f, open(conversations, "w", encoding="utf-8") as out:
        lines = f.read().splitlines()[:samples]
        bad = json.loads(lines[2])
        bad["id"], bad["messages"][0]["role"] = "alien-role", "alien"
        lines[2] = json.dumps(bad)
        out.write("\n".join(lines) + "\n")
    strict = Lab.__new__(Lab)
    strict.__dict__ = dict(lab.__dict__, target=target, train=conversations)
    return strict


def rejected_role(lab):
    strict = strict_lab(lab)
    run = strict.init("roles")
    ends(lab, ["run", run, "--to", "extract"], 65, "alien-role", "BAD_INPUT", "accept-missing", f"{strict.train}:3", "unknown role alien")
    ends(lab, ["accept-missing", run, "--ids", "alien-role", "--reason", "a test"], 0)
    ends(lab, ["run", run, "--to", "verify"], 0)


def other_store_and_checkpoint(lab, done):
    target = os.path.join(lab.folder, "others")
    tiny_target.write_target(target, seed=8)
    programs = os.path.dirname(lab.aerie)
    ends(lab, ["--run", done, "--target.path", target], 78, "lm_head_hash", program=os.path.join(programs, "aerie-extract"))
    ends(lab, ["--run", done, "--train.lr", "0.5"], 78, "train.lr", program=os.path.join(programs, "aerie-train"))
    ends(lab, ["--run", done, "--draft.rope_theta", "77"], 78, "draft.rope_theta", program=os.path.join(programs, "aerie-export"))


def two_jobs(lab, prepared):
    train = os.path.join(os.path.dirname(lab.aerie), "aerie-train")
    ends(lab, ["run", prepared, "--to", "vocab"], 0)
    first = subprocess.Popen([train, "--run", prepared], env=dict(lab.env, AERIE_FAULT="ckpt.after_data_fsync:0:1:stall"), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        checkpoints = os.path.join(prepared, "checkpoints")
        while not (os.path.isdir(checkpoints) and any(".tmp." in name for name in os.listdir(checkpoints))):
            check(time.monotonic() < deadline and first.poll() is None, "the first job did not reach its checkpoint")
            time.sleep(0.1)
        ends(lab, ["--run", prepared], 78, "is in use by aerie-train", str(first.pid), program=train)
    finally:
        end_session(first)


@contextlib.contextmanager
def mounted(folder, options):
    os.makedirs(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def bad_disks(lab, prepared):
    with mounted(os.path.join(lab.folder, "small"), "size=1200k") as disk:
        run = os.path.join(disk, "run")
        shutil.copytree(prepared, run)
        ends(lab, ["run", run, "--to", "extract"], 74, "No space left on device", "store")
        check(not os.path.exists(os.path.join(run, "store", "manifest.json")), "a store without room has a manifest")
    with mounted(os.path.join(lab.folder, "fixed"), "size=64m") as disk:
        run = os.path.join(disk, "run")
        shutil.copytree(prepared, run)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ends(lab, ["run", run, "--to", "extract"], 74, "Read-only file system")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--aerie", required=True)
    parser.add_argument("--source", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aerie-bad-") as folder:
        lab = Lab(args.aerie, args.source, folder)
        prepared = lab.init("prepared")
        lab.call("run", prepared, "--to", "prepare")
        skipped = 0
        try:
            missing_shard(lab, prepared)
            cut_short(lab, prepared)
            rejected_role(lab)
            if os.getuid() == 0:
                bad_disks(lab, prepared)
            else:
                skipped = 2
                print("SKIP: full disk and read-only file system need root", file=sys.stderr)
            two_jobs(lab, prepared)
            done = lab.init("done")
            lab.call("run", done)
            other_store_and_checkpoint(lab, done)
        except Failed as e:
            print(f"FAILED: {e}")
            return 1
        print(f"bad input: all cases as documented, {skipped} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
