#!/usr/bin/env bash
# From a bare checkout to a trained drafter for SmolLM2-135M-Instruct: installs what is missing, builds, then runs the pipeline on two
# ranks of this machine's CPU with the programs that users use; `aerie run` prints what came out of it. Needs no GPU.
# Run it again and it goes on where it was, or shows the table. --fresh starts a new run directory beside the old ones.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/scripts/env.sh"
cd "$AERIE_ROOT"

ranks=${AERIE_RANKS:-2}
run=runs/smol fresh=
for arg in "$@"; do
  case $arg in
    --fresh) fresh=1 ;;
    -h | --help) sed -n '2,4s/^# //p' "$0" && exit 0 ;;
    *) die 2 "unknown argument $arg (known: --fresh, --help)" ;;
  esac
done
# Runs are runs/smol, runs/smol-2, runs/smol-3 ...: the newest goes on, --fresh makes the next.
last=1
while [ -e "runs/smol-$((last + 1))" ]; do last=$((last + 1)); done
if [ -n "$fresh" ] && [ -e runs/smol ]; then last=$((last + 1)); fi
[ "$last" = 1 ] || run=runs/smol-$last

scripts/setup.sh smollm2
scripts/build.sh aerie aerie-preflight aerie-extract aerie-train aerie-eval aerie-export
PATH=$AERIE_BUILD/bin:$PATH

began=$SECONDS
if [ ! -e "$run/aerie.toml" ]; then
  say "quickstart: aerie init $run"
  settings=() # each line of the file is `section.key = value`, which --set takes as it is
  while read -r line; do settings+=(--set "$line"); done < <(sed -nE 's/[[:space:]]*(#.*)?$//; s/^([a-z_.]+)[[:space:]]*=[[:space:]]*(.*)$/\1=\2/p' examples/smol/settings.toml)
  aerie init "$run" --target .deps/smollm2 --conversations examples/smol/train.jsonl.gz \
    --eval-conversations examples/smol/eval.jsonl.gz "${settings[@]}"
fi
say "quickstart: aerie run $run --ranks $ranks" # prints the table at its end
aerie run "$run" --ranks "$ranks" </dev/null || {
  code=$?
  die "$code" "aerie run ended with $code; the same command goes on where it stopped"
}
say "quickstart: done after $((SECONDS - began)) s; look around with: build/cpu/bin/aerie status $run"
