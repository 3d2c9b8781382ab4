#!/usr/bin/env bash
# The memory estimate of a run beside the peak that was measured, each run in a process of its own: the update on recorded
# rollouts (`forage bench train`), then whole runs with the engine (forage train).
# Usage: bench/memory/run.sh [small] [0.5b] [full] [loop]   (all by default; 0.5b takes half an hour on two cores and 3 GiB)
# Rollouts are written to $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
cargo build --release --locked -p forage
release="${CARGO_TARGET_DIR:-target}/release"
python3 bench/memory/run.py --home "$home/memory" --forage "$release/forage" \
    --parts "${@:-small 0.5b full loop}"
