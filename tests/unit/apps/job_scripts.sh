#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# jobs/slurm/lib/common.sh as it is, with stand-ins for Slurm's commands: when a job looks at its GPUs' memory after a phase (after
# ends that are for good, where it has the time, never before a requeue); how often it launches (again when the program never ran,
# once when it died at work); that a warning in the middle of a launch is passed on.
#   job_scripts.sh SOURCE
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
echo launch >>"$DIR/launches"
for word; do
  case $word in AERIE_READY_FILE=*) [ -n "${UNREADY:-}" ] || : >"${word#*=}" ;; esac
done
[ -z "${WARN:-}" ] || kill -USR2 "$PPID"
if [ -n "${HEEDS:-}" ]; then # a launcher that ends 75 when the warning comes, and takes no harm from a second one to all of the job
  trap '' USR2
  sleep 0.3
  pkill -USR2 -P "$PPID"
  trap 'exit 75' USR2
  for ((i = 0; i < 100; i++)); do sleep 0.05; done
fi
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
stand_in squeue <<'EOF'
#!/bin/bash
echo "${NOW_ENDS:-N/A}"
EOF
# A job of one phase, after its preflight.
cat >"$dir/job" <<'EOF'
set -u
. "$AERIE_JOBS/lib/common.sh"
launch_pause=0.1
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
  launches=$(grep -c launch "$dir/launches")
  rm -f "$dir/launches"
  echo "$launches: $(grep -xE 'look|requeue|end' "$dir/log" | paste -sd' ') $rc"
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
expect "1: look end 0"
expect "1: look end 0" SLURM_JOB_END_TIME=$later
expect "1: end 0" SLURM_JOB_END_TIME=$soon # its limit would cut the job off
expect "1: end 0" AERIE_GPUS=0
for code in 65 70 74; do
  expect "1: look $code" CODE=$code
  expect "1:  $code" CODE=$code SLURM_JOB_END_TIME=$soon
done
for code in 2 66 78 93; do expect "1:  $code" CODE=$code; done # it refused to begin
for code in 75 76 137; do expect "1: requeue $code" CODE=$code; done
# The program never ran: three launches, unless there is a warning, a preemption or a stop file, or the code is the program's own.
for code in 1 134 137 139 143; do expect "3: requeue $code" CODE=$code UNREADY=1; done
for code in 2 65 69 75 93 126 127; do
  [ "$(job CODE=$code UNREADY=1 | cut -c1)" = 1 ] || {
    echo "FAILED: launched again after $code"
    failures=1
  }
done
expect "1: requeue 75" CODE=139 UNREADY=1 WARN=1
expect "1: requeue 75" WARN=1 HEEDS=1
expect "1: requeue 75" WARN=1 HEEDS=1 UNREADY=1 AERIE_WARNING=8 # it goes out without the file too, after a quarter of that
expect "1: requeue 75" CODE=143 UNREADY=1 SLURM_JOB_END_TIME=$later NOW_ENDS="$(date -d @$soon +%FT%T)"
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
expect "1: look end 0" LOOK_S=50
wait
[ $((SECONDS - began)) -lt 20 ] || {
  echo "FAILED: a warning did not end the look: $((SECONDS - began)) s"
  failures=1
}
exit "$failures"
