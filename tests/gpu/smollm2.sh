#!/usr/bin/env bash
# On a machine with a GPU, after scripts/build-on-gpu.sh and with .deps/smollm2: the SmolLM2 example with bf16 and with fp8 states, whose tau
# must differ by less than 0.02, then the proof that training gives the same bits on one rank (NCCL), on two ranks that share the GPU
# (MPI), and killed and resumed. Prints what it finds; ends non-zero when a line does not hold.
#   tests/gpu/smollm2.sh BUILD OUT
set -euo pipefail
build=${1:?build folder} out=${2:?output folder}
export PATH=$PWD/$build/bin:$PATH AERIE_PYTHON=${AERIE_PYTHON:-python3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
runs=$(mktemp -d)
mkdir -p "$out"

settings=()
while read -r line; do settings+=(--set "$line"); done < <(sed -nE 's/[[:space:]]*(#.*)?$//; s/^([a-z_.]+)[[:space:]]*=[[:space:]]*(.*)$/\1=\2/p' examples/smol/settings.toml)
for dtype in bf16 fp8; do
  aerie init "$runs/$dtype" --target .deps/smollm2 --conversations examples/smol/train.jsonl.gz \
    --eval-conversations examples/smol/eval.jsonl.gz "${settings[@]}" --set "extract.dtype=\"$dtype\"" >/dev/null
  began=$SECONDS
  aerie run "$runs/$dtype" --ranks 1 </dev/null >"$out/$dtype.txt" 2>"$out/$dtype.log" || { tail -20 "$out/$dtype.log"; exit 1; }
  echo "$dtype: aerie run in $((SECONDS - began)) s"
  cp "$runs/$dtype/eval.json" "$out/eval-$dtype.json"
  cp "$runs/$dtype/metrics.jsonl" "$out/metrics-$dtype.jsonl"
  grep -h transport "$out/$dtype.log" | tail -1
done
python3 - "$out" <<'PY'
import json, sys
tau = {}
for dtype in ("bf16", "fp8"):
    found = json.load(open(f"{sys.argv[1]}/eval-{dtype}.json"))
    tau[dtype] = found["trained"]["tau"]
    print(dtype, "tau", tau[dtype])
worst = max(abs(tau["bf16"][k] - tau["fp8"][k]) for k in tau["bf16"])
print(f"largest difference of tau: {worst:.4f}")
sys.exit(worst >= 0.02)
PY
aerie verify --full "$runs/fp8/store"
aerie-train --run "$runs/bf16" --prove "${PROVE_STEPS:-20}" --kill-at 7 --ranks 1,2
