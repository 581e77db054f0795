#!/usr/bin/env bash
# aerie-preflight on a machine with a GPU: the real NVML, a process that holds memory, its end, and the record after a phase.
#   tests/gpu/preflight.sh [BUILD_DIR]        needs: aerie-preflight, python3 with torch (CUDA), a GPU that nobody else uses
# Prints one line per claim, ends 1 when one does not hold.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
preflight=$(realpath "${1:-build/cuda}/bin/aerie-preflight")
python=${AERIE_PYTHON:-python3}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset AERIE_NVML AERIE_FAKE_NVML
dir=$(mktemp -d)
holder=
trap '[ -z "$holder" ] || kill "$holder" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir "$dir/run"
printf '[target]\npath = "%s/none"\n' "$dir" >"$dir/run/aerie.toml"

bad=0
# claim TEXT COMMAND...
claim() {
  local text=$1
  shift
  if "$@"; then echo "ok     $text"; else echo "FAILED $text"; bad=1; fi
}
# look FILE FLAGS...: the exit code is in $code, the object in FILE
look() {
  local out=$1
  shift
  code=0
  "$preflight" --run "$dir/run" --json "$@" >"$out" 2>"$out.err" || code=$?
}
# holds FILE EXPRESSION: python over the object `o`, its checks `c` by name
# shellcheck disable=SC2317
holds() {
  "$python" - "$1" "$2" <<'P'
import json, sys
o = json.load(open(sys.argv[1]))
c = {x["check"]: x for x in o["checks"]}
sys.exit(0 if eval(sys.argv[2]) else 1)
P
}

gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -1)

look "$dir/idle" --gpus "$gpus"
claim "an idle machine passes (exit $code)" [ "$code" = 0 ]
claim "as many GPUs as nvidia-smi shows ($gpus)" holds "$dir/idle" "len(c['gpus']['details']['nodes'][0]['gpus']) == $gpus"
claim "the same UUID ($uuid)" holds "$dir/idle" "c['gpus']['details']['nodes'][0]['gpus'][0]['uuid'] == '$uuid'"
claim "the same driver ($driver)" holds "$dir/idle" "c['driver']['details']['nodes'][0]['driver'] == '$driver'"
claim "memory, temperature and clock are told" holds "$dir/idle" \
  "c['gpus']['details']['nodes'][0]['gpus'][0]['memory_total_bytes'] > 2**30 and 0 < c['gpu-clocks']['details']['nodes'][0]['gpus'][0]['temperature_c'] < 110"
claim "nobody holds memory" holds "$dir/idle" "c['gpu-memory']['result'] == 'PASS' and not c['gpu-memory']['details']['nodes'][0]['processes']"
used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1)
claim "memory in use is nvidia-smi's ($used MiB, within 64)" holds "$dir/idle" \
  "abs(c['gpus']['details']['nodes'][0]['gpus'][0]['memory_used_bytes'] / 2**20 - $used) < 64"

"$python" -c '
import time, torch
held = torch.empty(3 << 30, dtype=torch.uint8, device="cuda:0")
held.zero_(); torch.cuda.synchronize()
print("held", flush=True)
time.sleep(600)' >"$dir/holder" &
holder=$!
for _ in $(seq 120); do grep -q held "$dir/holder" && break; sleep 0.5; done
look "$dir/busy" --gpus "$gpus"
claim "a holder of 3 GiB ends it with 69 (exit $code)" [ "$code" = 69 ]
me=$(id -un)
# In a container with its own PID namespace the driver may tell another number, or nobody; then that is said in place of the name.
claim "it is named by pid $holder and user $me" holds "$dir/busy" \
  "any(p['pid'] == $holder and p['user'] == '$me' and 'torch' in p['command'] for p in c['gpu-memory']['details']['nodes'][0]['processes'])"
claim "with its bytes" holds "$dir/busy" "any((p['bytes'] or 0) >= 3 * 2**30 for p in c['gpu-memory']['details']['nodes'][0]['processes'])"
claim "and how to stop it" holds "$dir/busy" "c['gpu-memory']['advice'] != ''"
look "$dir/held" --after train --wait 0
claim "--after tells that it is still held" holds "$dir/held" "o['result'] == 'WARN'"

kill "$holder"
look "$dir/free" --after train # while the driver is at it
claim "after its end the memory is free again, within the wait" holds "$dir/free" "o['result'] == 'PASS' and o['checks'][0]['details']['waited_s'] < 10"
claim "and recorded" grep -q '"what":"gpu-memory"' "$dir/run/ledger.jsonl"
wait "$holder" 2>/dev/null
holder=
look "$dir/again" --gpus "$gpus"
claim "and preflight passes again (exit $code)" [ "$code" = 0 ]
look "$dir/more" --gpus $((gpus + 1))
claim "one GPU more than there are ends with 69" [ "$code" = 69 ]

if [ "$gpus" -gt 1 ]; then
  code=0
  mpirun -q -n "$gpus" --bind-to none "$preflight" --run "$dir/run" --json --gpus "$gpus" >"$dir/nccl" 2>"$dir/nccl.err" || code=$?
  claim "sums over NCCL on $gpus GPUs are right (exit $code)" holds "$dir/nccl" "c['nccl']['result'] == 'PASS' and c['nccl']['details'].get('bytes_per_s', 0) > 1e9"
  "$python" -c "import json; print('      ', {x['check']: x['seen'] for x in json.load(open('$dir/nccl'))['checks']}['nccl'])"
fi
[ "$bad" = 0 ] || { cat "$dir"/*.err; cat "$dir/busy"; }
exit "$bad"
