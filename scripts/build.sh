#!/usr/bin/env bash
# Configures (once) and builds the given ninja targets, or everything, in build/cpu; ninja's own progress line is kept short.
# Ends at once when nothing has changed.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
cd "$AERIE_ROOT"

if [ ! -e "$AERIE_BUILD/build.ninja" ]; then
  say "build: configuring ${AERIE_BUILD#"$AERIE_ROOT"/}"
  mkdir -p "$AERIE_BUILD"
  cmake --preset cpu -B "$AERIE_BUILD" >"$AERIE_BUILD/configure.log" 2>&1 </dev/null || {
    cat "$AERIE_BUILD/configure.log" >&2
    die 2 "cmake could not configure; see above"
  }
fi

# A file that includes LibTorch takes about 1.5 GB to compile: no more jobs at once than memory allows.
gigabytes=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
[ "$jobs" -le $((gigabytes * 2 / 3)) ] || jobs=$((gigabytes * 2 / 3))
[ "$jobs" -ge 1 ] || jobs=1
export NINJA_STATUS="[%f/%t %es] "

say "build: ${*:-everything} with $jobs jobs"
if [ -t 1 ]; then
  ninja -C "$AERIE_BUILD" -j "$jobs" "$@" </dev/null
else # a log: one line of ninja every 15 s, and the errors when it fails
  log=$AERIE_BUILD/build.log
  ninja -C "$AERIE_BUILD" -j "$jobs" "$@" </dev/null 2>&1 | tee "$log" | {
    next=0
    while IFS= read -r line; do
      if [ "${line:0:1}" = '[' ] && [ "$SECONDS" -ge "$next" ]; then
        say "build: $line"
        next=$((SECONDS + 15))
      fi
    done
  } || {
    grep -v '^\[' "$log" | tail -n 200 >&2
    die 70 "the build failed; the whole log is $log"
  }
fi
