#!/usr/bin/env bash
# Sets up, builds everything and runs the tests; arguments go to ctest: ./test.sh -L unit, ./test.sh -R store.
# Labels: unit, mpi (1, 2 and 4 ranks), e2e, slurm and slurm-full (skipped without Slurm; AERIE_SLURM=1 installs it). No GPU is needed. Running no test at all is an error.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/scripts/env.sh"

"$AERIE_ROOT/scripts/setup.sh"
"$AERIE_ROOT/scripts/build.sh"

# The full matrix of launchers is for those who ask for it.
[ $# -gt 0 ] || set -- -LE '^slurm-full$'

# At least two at a time, so that 2-rank tests do not wait for cores that small machines lack.
jobs=$(nproc)
[ "$jobs" -ge 2 ] || jobs=2
say "test: ctest -j$jobs $*"
cd "$AERIE_BUILD"
exec ctest --no-tests=error --output-on-failure --timeout 60 -j"$jobs" "$@" </dev/null
