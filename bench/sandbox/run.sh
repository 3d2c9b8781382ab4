#!/usr/bin/env bash
# Turns of model-written Python in the sandbox against a fresh CPython process per turn, a CPython `exec` server and Monty,
# in turns: latency, turns per second, memory of 500 live sessions, checkpoints, forks, opening. About two minutes.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environment; deleting it is always safe. ROUNDS (8).
set -euo pipefail
cd "$(dirname "$0")/../.."
BENCH_HOME="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
VENV="$BENCH_HOME/sandbox-venv"
if ! "$VENV/bin/python" -c 'import pydantic_monty' 2>/dev/null; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet pydantic-monty==1.4.0
fi
export PYTHON="$VENV/bin/python"
cargo build --release --locked --quiet -p forage-sandbox --example sandbox_bench
mkdir -p "$BENCH_HOME/sandbox"
"$PYTHON" bench/sandbox/run.py "${CARGO_TARGET_DIR:-target}/release/examples/sandbox_bench" "$BENCH_HOME/sandbox" "${ROUNDS:-8}"
