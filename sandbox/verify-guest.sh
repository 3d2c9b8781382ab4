#!/usr/bin/env bash
# Makes the interpreter anew, twice, and compares the bytes with those committed: sandbox/verify-guest.sh. First in the target folder that
# guest/build.sh keeps, then in another folder with nothing compiled.
#
# Exit status 0 when all bytes are equal, 1 when they differ or cannot be made, 75 when no toolchain is to be had, or crates cannot be
# fetched. What was found equal on this machine is not made again: a file in the cache folder says so. On two cores about half an hour the
# first time.
set -euo pipefail
cd "$(dirname "$0")/guest"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/forage-guest
mkdir -p "$cache/verified"
scratch=$(mktemp -d "$cache/anew.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# Nothing that was made: what is missing afterwards was not built.
tar --exclude=./python.wasm.zst --exclude=./guest.toml --exclude=./target --exclude=./snapshot/target -cf "$scratch/sources.tar" .
found=$(find . -type f -not -path './target/*' -not -path './snapshot/target/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
if [[ -e $cache/verified/$found ]]; then
  echo "the committed interpreter is what its sources make: $(cat "$cache/verified/$found")"
  exit 0
fi

# make FOLDER: builds the sources there and compares.
make() {
  local code=0 file
  mkdir -p "$1"
  tar -xf "$scratch/sources.tar" -C "$1"
  bash "$1/build.sh" >"$scratch/log" 2>&1 || code=$?
  if [[ $code -ne 0 ]]; then
    tail -20 "$scratch/log"
    # The first thing that build.sh writes once it has a toolchain.
    if [[ ! ${XDG_CACHE_HOME:-$HOME/.cache}/forage-guest/fixed/git -nt $scratch/sources.tar ]]; then
      echo "no toolchain of the interpreter can be had here"
      exit 75
    fi
    if grep -qiE 'spurious network error|failed to download|unable to update registry' "$scratch/log"; then
      echo "crates of the interpreter cannot be fetched here"
      exit 75
    fi
    exit 1
  fi
  for file in python.wasm.zst guest.toml; do
    if ! cmp "$1/$file" "$file"; then
      diff "$1/guest.toml" guest.toml || true
      echo "$file is not what these sources make; run sandbox/guest/build.sh and commit it, or look at the toolchain's version above"
      exit 1
    fi
  done
}

# The same folder each time: with another, all of it would be compiled again. Not within the cache, whose name stands for it in paths.
rm -rf "$cache-sources"
make "$cache-sources"
# The toolchain and the tool that takes the snapshot are the same ones.
mkdir -p "$scratch/cache/forage-guest"
# Linked file by file: the compiler finds the standard library's sources by where it stands itself.
[[ ! -d $cache/debian ]] || cp -al "$cache/debian" "$scratch/cache/forage-guest/debian"
FORAGE_SNAPSHOT_TARGET="$cache/target" XDG_CACHE_HOME="$scratch/cache" make "$scratch/elsewhere"
printf 'made twice on %s, byte for byte\n' "$(date -u +%F)" >"$cache/verified/$found"
echo "the committed interpreter is what its sources make, twice, byte for byte"
