#!/usr/bin/env bash
# Losses, advantages and curricula on one task: each line of methods.txt trains the quickstart's policy under several seeds, each a
# world of its own, with as many episodes as every other, and is then held against the start and the first line on held-out
# questions. Prints a table with 95 % intervals (over seeds, Student's t; of one seed over questions, bootstrap) and a line of JSON.
# A run that came to its end is not trained again; how long it took is then that of the first time.
# Usage: [STEPS=200] [SEEDS=3] bench/methods/run.sh SCRATCH_FOLDER [CONFIG [METHODS]]
# METHODS are names of methods.txt; all without them.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/methods/run.sh SCRATCH_FOLDER [CONFIG [METHODS]]}
config=${2:-configs/quickstart.toml}
mkdir -p "$scratch"
forage=${FORAGE_BIN:-}
if [ -z "$forage" ]; then
  cargo build --release --locked -p forage
  forage="${CARGO_TARGET_DIR:-target}/release/forage"
fi
exec python3 bench/methods/run.py --forage "$forage" --config "$config" --scratch "$scratch" --steps "${STEPS:-200}" \
  --seeds "${SEEDS:-3}" --methods "${@:3}"
