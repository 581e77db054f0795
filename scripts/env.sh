# shellcheck shell=bash
# Sourced by quickstart.sh, test.sh and the other scripts: where things lie, and what mpirun needs. Changes nothing on disk.
# Not here: what a cluster needs (jobs/slurm/site.env).
AERIE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
AERIE_BUILD=${AERIE_BUILD:-$AERIE_ROOT/build/cpu}
export AERIE_PYTHON=${AERIE_PYTHON:-$AERIE_ROOT/.deps/venv/bin/python}  # runs aerie-prepare
if [ "$(id -u)" = 0 ]; then  # mpirun refuses to run as root without both
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

say() { echo "$(date +%T) $*" >&2; }
die() { # die CODE TEXT...
  local code=$1
  shift
  echo "error: $*" >&2
  exit "$code"
}
# Two hyperthreads are one slot to Open MPI 4: two ranks must be allowed there too, and must not burn the core while they wait.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
