#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# When a job looks at its GPUs' memory after a phase: after ends that are for good, where the job has the time, and never before
# a requeue. jobs/slurm/lib/common.sh as it is, with stand-ins for Slurm's commands.
#   job_look_after.sh SOURCE
set -u
jobs=$(realpath "$1")/jobs/slurm
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/run"
: >"$dir/site.env"
stand_in() { cat >"$dir/bin/$1" && chmod +x "$dir/bin/$1"; }
stand_in srun <<'EOF'
#!/bin/bash
case "$*" in
  *--after*) echo look; echo "$BASHPID" >"$DIR/looking"; exec sleep "${LOOK_S:-0}" ;;
esac
exit "$CODE"
EOF
stand_in aerie <<'EOF'
#!/bin/bash
[ "$1" != status ] || echo complete
EOF
stand_in scontrol <<'EOF'
#!/bin/bash
case "$*" in
  requeue*) echo requeue; exit 1 ;;
  *) echo JobId=7 ;;
esac
EOF
stand_in squeue <<<'#!/bin/bash'
# A job of one phase, after its preflight.
cat >"$dir/job" <<'EOF'
set -u
. "$AERIE_JOBS/lib/common.sh"
phase=train AERIE_PROGRAM=aerie-train
mpi aerie-train --run "$RUN"
after
confirm
echo end
EOF
# job VARIABLE=VALUE...: what it did, in words.
job() {
  env PATH="$dir/bin:$PATH" DIR="$dir" RUN="$dir/run" AERIE_JOBS="$jobs" AERIE_SITE="$dir/site.env" SLURM_JOB_ID=7 \
    SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 AERIE_GPUS=1 GPUS_PER_NODE=1 CODE=0 "$@" bash "$dir/job" >"$dir/log" 2>&1
  local rc=$?
  echo "$(grep -xE 'look|requeue|end' "$dir/log" | paste -sd' ') $rc"
}
failures=0
expect() { # WANTED VARIABLE=VALUE...
  local wanted=$1 found
  shift
  found=$(job "$@")
  [ "$found" = "$wanted" ] && return
  echo "FAILED: with $*: '$found', not '$wanted'"
  cat "$dir/log"
  failures=1
}
soon=$(($(date +%s) + 70)) later=$(($(date +%s) + 3600))
expect "look end 0"
expect "look end 0" SLURM_JOB_END_TIME=$later
expect "end 0" SLURM_JOB_END_TIME=$soon # its limit would cut the job off
expect "end 0" AERIE_GPUS=0
for code in 65 70 74; do
  expect "look $code" CODE=$code
  expect " $code" CODE=$code SLURM_JOB_END_TIME=$soon
done
for code in 2 66 78 93; do expect " $code" CODE=$code; done # it refused to begin
for code in 75 76 137; do expect "requeue $code" CODE=$code; done
# A warning ends a look that takes long.
began=$SECONDS
(
  rm -f "$dir/looking"
  for ((i = 0; i < 200; i++)); do
    [ -e "$dir/looking" ] && break
    sleep 0.05
  done
  job=$(pgrep -f "^bash $dir/job") && kill -USR2 "$job"
) &
expect "look end 0" LOOK_S=50
wait
[ $((SECONDS - began)) -lt 20 ] || {
  echo "FAILED: a warning did not end the look: $((SECONDS - began)) s"
  failures=1
}
exit "$failures"
