# shellcheck shell=bash
# Sourced by every job script: run one program after the other, pass one signal on, act on the exit code.
# The exit codes are those of `aerie explain-exit`. Needs RUN and site.env's settings.

say() { echo "$(date +%FT%T) job: $*"; }

# The only trap. A shell in `wait` with several traps loses one of two signals that arrive together, and Slurm sends CONT with each.
pid=
warned=
trap 'say "got USR2"; warned=1; [ -z "$pid" ] || kill -USR2 "$pid"' USR2

# An array's last task has the array's own id; only this form means one task.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}

# When the job ends, in seconds since 1970, for the programs' time budget; empty when unlimited. Slurm 22.05 sets no variable for it.
end=${SLURM_JOB_END_TIME:-}
if [ -z "$end" ]; then
  end=$(squeue -h -j "$id" -o %e)
  case $end in # N/A or nothing must not reach date, which would read it as midnight
    20*) end=$(date -d "$end" +%s) ;;
    *) end= ;;
  esac
fi
export AERIE_END_TIME=$end

# requeue CODE: back into the queue while there is progress. Slurm ends the script while it sleeps.
requeue() {
  if [ -e "$RUN/stop" ]; then
    say "exit $1, stop file: no requeue"
    exit "$1"
  fi
  if ! aerie may-requeue --run "$RUN" "$1"; then
    say "exit $1: no progress"
    exit 93
  fi
  say "exit $1: requeue $id"
  scontrol requeue "$id" && { sleep 600 & wait $!; }
  say "requeue refused"
  exit "$1"
}

# step LAUNCHER... PROGRAM ARGS...: returns only when the program ended 0.
step() {
  if [ -e "$RUN/stop" ]; then
    say "stop file: nothing to do"
    exit 0
  fi
  [ -z "$warned" ] || requeue 75 # warned between two steps
  say "start $id restart=${SLURM_RESTART_COUNT:-0} nodes=$SLURM_JOB_NODELIST end=${end:-none}: $*"
  "$@" &
  pid=$!
  local rc=0
  wait "$pid" || rc=$?
  while [ "$rc" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do # the trap ran and the child lives: wait again
    rc=0
    wait "$pid" || rc=$?
  done
  pid=
  say "launcher exit $rc"
  case $rc in
    0) ;;
    2 | 65 | 66 | 69 | 70 | 74 | 78 | 93 | 126 | 127) exit "$rc" ;;
    205) # mpirun lost a node: Slurm requeues by itself, later; ending now would leave the job FAILED
      say "node lost: the requeue is Slurm's"
      sleep "${AERIE_LINGER:-400}" &
      wait $!
      requeue "$rc"
      ;;
    *) requeue "$rc" ;; # 75, 76; 1, 134, 137, 139, 143: something died
  esac
}

# mpi PROGRAM ARGS...: one rank per GPU (or AERIE_RANKS_PER_NODE) on every node of the job.
mpi() {
  local n=$SLURM_JOB_NUM_NODES g=${AERIE_RANKS_PER_NODE:-$GPUS_PER_NODE}
  case ${LAUNCHER:-srun} in
    srun) step srun --mpi=pmix --kill-on-bad-exit=1 -N"$n" -n$((n * g)) ${CPUS_PER_TASK:+--cpus-per-task="$CPUS_PER_TASK"} "$@" ;;
    mpirun) step mpirun -q -n $((n * g)) --map-by "ppr:$g:node" "$@" ;;
    *)
      say "LAUNCHER is $LAUNCHER, known are srun and mpirun"
      exit 2
      ;;
  esac
}
