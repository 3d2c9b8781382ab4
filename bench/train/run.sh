#!/usr/bin/env bash
# Optimizer steps on recorded rollouts, ours and PyTorch's, on the processor: seconds, memory, and how far the weights after the
# last step are apart. Then whole GRPO steps beside TRL's trainer.
# Usage: bench/train/run.sh [small] [0.5b] [trl]   (all by default)
# PyTorch, transformers, PEFT and TRL are installed into $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/train-venv once.
set -euo pipefail
cd "$(dirname "$0")/../.."
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
venv=$home/train-venv
mkdir -p "$home"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import torch, transformers, peft, trl' 2>/dev/null ||
    "$venv/bin/python" -m pip install -q torch transformers peft trl datasets
cargo build --release --locked -p forage
release="${CARGO_TARGET_DIR:-target}/release"
HF_HUB_OFFLINE=1 "$venv/bin/python" bench/train/run.py --home "$home/train" --forage "$release/forage" \
    --parts "${@:-small 0.5b trl}"
