# shellcheck shell=bash
# Sourced by every job script: run one program after the other, pass one signal on, act on the exit code.
# The exit codes are those of `aerie explain-exit`. Needs RUN and AERIE_JOBS; sources the site's settings.

say() { echo "$(date +%FT%T) job: $*"; }

# The only trap. A shell in `wait` with several traps loses one of two signals that arrive together, and Slurm sends CONT with each.
pid=
warned=${warned:-} # the script may have been warned before it came here
trap 'say "got USR2"; warned=1; [ -z "$pid" ] || pass_on' USR2

# pass_on: the signal to the launcher, once the program says that all of it runs: in the middle of a launch it would hit the launcher
# or a task prolog, and Slurm 22.05 can hang on that. After 20 s (a quarter of a shorter warning time) it goes out anyway, and again
# every few seconds until the launcher ends; to the programs one or many is the same.
repeater=
pass_on() {
  [ -z "$repeater" ] || return 0
  {
    trap '' USR2 # a second one to all of the job must not end this
    for ((i = 0; i < ${AERIE_WARNING:-300} && i < 80; i++)); do
      if [ -e "$ready" ] || ! kill -0 "$pid" 2>/dev/null; then break; fi
      sleep 0.25
    done
    while kill -USR2 "$pid" 2>/dev/null; do sleep 3; done
  } &
  repeater=$!
}

PATH=${AERIE_BIN:+$AERIE_BIN:}$PATH
AERIE_WRAP=() # a site with containers sets what goes before every program
set +u # modules and Spack do not work under it
# shellcheck source=jobs/slurm/examples/site-modules.env
. "${AERIE_SITE:-$AERIE_JOBS/site.env}"
set -u

# An array's last task has the array's own id; only this form means one task.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}

# end_time: of the job, as Slurm has it now, in seconds since 1970; empty when unlimited.
end_time() {
  local text
  text=$(squeue -h -j "$id" -o %e)
  case $text in # N/A or nothing must not reach date, which would read it as midnight
    20*) date -d "$text" +%s ;;
  esac
}
# For the programs' time budget. Slurm 22.05 sets no variable for it.
end=${SLURM_JOB_END_TIME:-$(end_time)}
export AERIE_END_TIME=$end

# A stop signal while a program loads its libraries would kill it (138, 140, 143). Started with the signals blocked, it finds them
# waiting when its handlers are there. Needs coreutils 8.31; without it the codes 138 and 140 are taken for what they are.
blocked=(--block-signal=USR1 --block-signal=USR2 --block-signal=TERM)
env "${blocked[@]}" true 2>/dev/null || blocked=()

# The program of a step creates this file when all its ranks run.
ready=$RUN/logs/ready-$id

# linger SECONDS: sleeps on through signals; Slurm may end the script here.
linger() {
  sleep "$1" &
  local sleeper=$!
  while kill -0 "$sleeper" 2>/dev/null; do wait "$sleeper"; done
}

# resubmit CODE: for jobs that Slurm may not requeue. A new job takes this one's place, also for those that wait for it.
resubmit() {
  local new job waits
  new=$(env -u SLURM_RESTART_COUNT sbatch --parsable "${AERIE_SCRIPT:?the job has Requeue=0, and AERIE_SCRIPT does not name its script}") || {
    say "exit $1: Requeue=0, and sbatch refused"
    exit "$1"
  }
  new=${new%%;*}
  say "exit $1: Requeue=0, so job $new takes over from $id"
  aerie submit "$RUN" --replaced "$id=$new" || say "the record does not know job $new"
  squeue -h -t PENDING -o '%i %E' | while read -r job waits; do
    # shellcheck disable=SC2001  # ${//} has no such pattern without extglob
    waits=$(sed 's/([a-z_]*)//g' <<<"$waits") # afterok:12(unfulfilled)
    case ,$waits, in
      *":$id,"* | *":$id:"*) scontrol update JobId="$job" Dependency="${waits//:$id/:$new}" ;;
    esac
  done
  exit "$1"
}

# requeue CODE: back into the queue while there is progress.
requeue() {
  if [ -e "$RUN/stop" ]; then
    say "exit $1, stop file: no requeue"
    exit "$1"
  fi
  local rc=0 tries
  aerie may-requeue --run "$RUN" --program "$AERIE_PROGRAM" "$1" || rc=$?
  case $rc in
    0) ;;
    93)
      say "exit $1: no progress"
      exit 93
      ;;
    *)
      say "exit $1: may-requeue failed ($rc), so no requeue"
      exit "$1"
      ;;
  esac
  for tries in 1 2 3 4 5 6 7 8 9 10 11 12; do
    say "exit $1: requeue $id"
    scontrol requeue "$id" && linger 600 # Slurm ends the script here
    case $(scontrol -o show job "$id" 2>/dev/null) in
      *' Requeue=0 '*) resubmit "$1" ;;
      '')
        say "no answer from slurmctld (try $tries)"
        linger 10
        ;;
      *)
        say "requeue refused" # Slurm has requeued it already, or somebody cancelled it
        exit "$1"
        ;;
    esac
  done
  exit "$1"
}

# start LAUNCHER... PROGRAM ARGS...: the launcher's exit code, in rc.
start() {
  mkdir -p "$RUN/logs"
  rm -f "$ready"
  say "start $id restart=${SLURM_RESTART_COUNT:-0} nodes=$SLURM_JOB_NODELIST end=${end:-none}: $*"
  "$@" &
  pid=$!
  [ -z "$warned" ] || pass_on # it came between the last two lines
  rc=0
  wait "$pid" || rc=$?
  while [ "$rc" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do # the trap ran and the child lives: wait again
    rc=0
    wait "$pid" || rc=$?
  done
  pid=
  [ -z "$repeater" ] || kill "$repeater"
  repeater=
  say "launcher exit $rc"
}

# launched: not when the launcher ended before all of the program ran: Open MPI may crash in MPI_Init when a slow node meets fast ones
# there, prologs fail, steps cannot be created. Such a launch is worth another one at once; nothing has been worked at.
launched() {
  ls "$RUN/logs" >/dev/null # NFS may remember that the file was not there
  [ ! -e "$ready" ] || return 0
  case $rc in 1 | 134 | 137 | 139 | 143) return 1 ;; esac
}

# cut_short: the job is being preempted: it will end earlier than it was told. Of that the launcher alone may have heard.
cut_short() {
  local now
  now=$(end_time)
  [ -n "$now" ] && [ "$now" -lt $((${end:-9999999999} - 5)) ]
}

launch_pause=3 # seconds between two tries
# looks_after: not empty while the program of a step is the phase's own, which may leave memory of GPUs behind.
looks_after=
# step LAUNCHER... PROGRAM ARGS...: returns only when the program ended 0; with 69 also where `may_leave_out` says so.
may_leave_out=
step() {
  local rc=0 tries
  for tries in 1 2 3; do
    if [ -e "$RUN/stop" ]; then
      say "stop file: nothing to do"
      exit 0
    fi
    [ -z "$warned" ] || requeue 75 # warned between two steps, or in a launch that failed
    start "$@"
    launched && break
    say "the launch failed (try $tries)"
    ! cut_short || warned=1
    sleep "$launch_pause"
  done
  rm -f "$ready"
  case $rc in
    0) ;;
    69)
      [ -n "$may_leave_out" ] || exit 69
      return 69
      ;;
    65 | 70 | 74) # the program was at work, and the job ends here for good: nobody else will look at its nodes
      [ -z "$looks_after" ] || after
      exit "$rc"
      ;;
    2 | 66 | 78 | 93 | 126 | 127) exit "$rc" ;;
    205) # mpirun lost a node: Slurm requeues by itself, later; ending now would leave the job FAILED
      say "node lost: the requeue is Slurm's"
      linger "${AERIE_LINGER:-400}"
      requeue "$rc"
      ;;
    138 | 140) requeue 75 ;; # a warning met a program before its first instruction
    *) # 75, 76; 1, 134, 137, 139, 143: something died. A warning may kill what the launcher had only begun to start, with any of these
      [ -z "$warned" ] || requeue 75
      requeue "$rc"
      ;;
  esac
}

# Nodes of the job that preflight found unfit and the job goes on without, separated by commas.
left_out=
# nodes: that are left.
nodes() {
  local out=${left_out//[^,]/}
  echo $((SLURM_JOB_NUM_NODES - ${#out}))
}
# hosts RANKS_PER_NODE: those that are left, as mpirun takes them.
hosts() {
  local name
  for name in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    case ,$left_out in *",$name,"*) ;; *) printf '%s:%s,' "$name" "$1" ;; esac
  done
}

# launch NODES RANKS_PER_NODE PROGRAM ARGS...
launch() {
  local n=$1 g=$2 # ${A[@]+"${A[@]}"}: before bash 4.4 an empty array counts as unset. A container may drop its environment
  local inside=(env ${blocked[@]+"${blocked[@]}"} ${AERIE_WRAP[@]+"${AERIE_WRAP[@]}"} env AERIE_READY_FILE="$ready")
  shift 2
  case ${LAUNCHER:-srun} in
    srun)
      step srun --mpi=pmix --kill-on-bad-exit=1 -N"$n" -n$((n * g)) ${left_out:+--exclude="${left_out%,}"} ${CPUS_PER_TASK:+--cpus-per-task="$CPUS_PER_TASK"} \
        "${inside[@]}" "$@"
      ;;
    mpirun) step mpirun -q -n $((n * g)) --map-by "ppr:$g:node" ${left_out:+--host "$(hosts "$g")"} "${inside[@]}" "$@" ;;
    *)
      say "LAUNCHER is $LAUNCHER, known are srun and mpirun"
      exit 2
      ;;
  esac
}

# begin PHASE PROGRAM: ends the job when the phase is complete, for Slurm may run a finished job again. PROGRAM is whose attempts
# the no-progress guard counts.
begin() {
  phase=$1
  AERIE_PROGRAM=$2
  local state
  if [ -e "$RUN/stop" ]; then
    say "stop file: nothing to do"
    exit 0
  fi
  state=$(aerie status "$RUN" --phase "$1") || state=unknown
  say "$1: $state"
  [ "$state" != complete ] || exit 0
}

# confirm: srun may end 0 without having run anything ("aborted before step completely launched"), so the record is asked. A task of
# an array is done when its program ended 0: other tasks may still be at work.
confirm() {
  [ "$(aerie status "$RUN" --phase "$phase")" != complete ] || return 0
  [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || [ "$(aerie status "$RUN" --attempt "$AERIE_PROGRAM")" != 0 ] || return 0
  say "the launcher ended 0, but $phase is not complete"
  requeue 1
}

# ranks: of the phase's program on each node.
ranks() { echo "${AERIE_RANKS_PER_NODE:-$GPUS_PER_NODE}"; }
# gpus: that the job was given on each node; 0: none, or Slurm does not say.
gpus() { echo "${AERIE_GPUS:-${SLURM_GPUS_ON_NODE:-0}}"; }

# preflight: are the nodes of this job fit to work? One rank on each; what dead attempts left there is ended first. Where all the
# trouble is on some nodes, the job goes on without them, while AERIE_MIN_NODES (default 1) are left. AERIE_PREFLIGHT: more flags, as
# --strict or --min-bandwidth 10.
preflight() {
  local unfit=$RUN/logs/unfit-$id rc least=${AERIE_MIN_NODES:-1} known name
  case $least in
    *[!0-9]*)
      say "AERIE_MIN_NODES is '$least', not a number"
      exit 2
      ;;
  esac
  while :; do
    rm -f "$unfit"
    rc=0
    may_leave_out=1
    # shellcheck disable=SC2046,SC2086  # words on purpose
    launch $(nodes) 1 aerie-preflight --run "$RUN" --nodes "$(nodes)" --warning "${AERIE_WARNING:-300}" --gpus "$(gpus)" \
      --phase "$phase" --ranks-per-node "$(ranks)" --unfit "$unfit" ${AERIE_PREFLIGHT:-} || rc=$?
    may_leave_out=
    [ "$rc" = 69 ] || return 0
    [ -s "$unfit" ] || exit 69
    known=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    while read -r name; do
      grep -qxF -- "$name" <<<"$known" || {
        say "exit 69: $name is unfit, and no node of this job has that name"
        exit 69
      }
    done <"$unfit"
    if [ $(($(nodes) - $(wc -l <"$unfit"))) -lt "$least" ]; then
      say "exit 69: without $(paste -sd, "$unfit") too few nodes are left"
      exit 69
    fi
    say "unfit, and left out: $(paste -sd, "$unfit")"
    left_out+=$(paste -sd, "$unfit"),
  done
}

# after: is the GPUs' memory free again? For the record: whatever comes of it, the phase has ended as it has. Only where the job has
# the time: one that its limit cuts off here has not ended as its phase did.
# Not before a requeue (75, and deaths): seconds count there, after a warning that may be for a preemption; a step that is launched
# late can hang in it; Slurm ends what is left on the nodes with the job; and the next start's preflight looks at its nodes anyway.
after() {
  [ "$(gpus)" != 0 ] && [ -z "$warned" ] || return 0
  local rc=0 n most=120 left look program=(aerie-preflight --run "$RUN" --after "$phase")
  if [ -n "$end" ]; then
    left=$((end - $(date +%s) - 60))
    [ "$left" -ge "$most" ] || most=$left
  fi
  if [ "$most" -lt 20 ]; then
    say "no time left to look at the GPUs' memory"
    return 0
  fi
  n=$(nodes)
  case ${LAUNCHER:-srun} in
    mpirun) set -- mpirun -q -n "$n" --map-by ppr:1:node ${left_out:+--host "$(hosts 1)"} ${AERIE_WRAP[@]+"${AERIE_WRAP[@]}"} "${program[@]}" ;;
    *) set -- srun --mpi=pmix -N"$n" -n"$n" ${left_out:+--exclude="${left_out%,}"} ${AERIE_WRAP[@]+"${AERIE_WRAP[@]}"} "${program[@]}" ;;
  esac
  timeout -k 10 "$most" "$@" &
  look=$!
  [ -z "$warned" ] || kill "$look" # it came between the last two lines
  wait "$look" || rc=$?
  while kill -0 "$look" 2>/dev/null; do # a signal: a warning ends the look
    [ -z "$warned" ] || kill "$look" 2>/dev/null
    rc=0
    wait "$look" || rc=$?
  done
  [ "$rc" = 0 ] || say "the look at the GPUs' memory ended with $rc"
}

# mpi PROGRAM ARGS...: one rank per GPU (or AERIE_RANKS_PER_NODE) on every node of the job.
mpi() {
  looks_after=1
  launch "$(nodes)" "$(ranks)" "$@"
  looks_after=
}
# solo PROGRAM ARGS...: one process.
solo() { launch 1 1 "$@"; }
