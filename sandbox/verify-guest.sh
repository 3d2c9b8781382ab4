#!/usr/bin/env bash
# Builds the interpreter again in a folder of its own and compares the bytes with those committed: guest/verify.sh [REVISION].
#
# With a revision it does nothing unless the sources or the interpreter differ from those of that revision. Exit status 0 when the bytes
# are equal or nothing has changed, 1 when they differ, 75 when no toolchain that could make them is to be had.
# Time as for build.sh: about fifteen minutes of processor time the first time, one minute afterwards.
set -euo pipefail
cd "$(dirname "$0")"
if [[ $# -gt 0 ]] && git diff --quiet "$1" -- .; then
  echo "the interpreter and its sources are those of $1"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Nothing that was made: what is missing afterwards was not built.
mkdir "$scratch/guest"
tar --exclude=./python.wasm.zst --exclude=./guest.toml --exclude=./target --exclude=./snapshot/target -cf - . | tar -xf - -C "$scratch/guest"
code=0
bash "$scratch/guest/build.sh" >"$scratch/log" 2>&1 || code=$?
if [[ $code -ne 0 ]]; then
  tail -20 "$scratch/log"
  if ! grep -q 'Compiling forage-guest ' "$scratch/log"; then
    echo "no toolchain of the interpreter can be had here"
    exit 75
  fi
  exit 1
fi
for file in python.wasm.zst guest.toml; do
  if ! cmp "$scratch/guest/$file" "$file"; then
    diff "$scratch/guest/guest.toml" guest.toml || true
    echo "$file is not what these sources make; run sandbox/guest/build.sh and commit it, or look at the toolchain's version above"
    exit 1
  fi
done
echo "the committed interpreter is what its sources make, byte for byte"
