#!/usr/bin/env bash
# Tokens per second of the generation engine and of transformers on the same random weights and prompts, on the processor.
# Usage: bench/generate/run.sh [small|0.5b]...   (both by default)
# PyTorch and transformers are installed into $FORAGE_BENCH_HOME (default ~/.cache/forage-bench)/torch once.
set -euo pipefail
cd "$(dirname "$0")/../.."
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
python=$home/torch/bin/python
mkdir -p "$home"
[ -x "$python" ] || python3 -m venv "$home/torch"
"$python" -c 'import torch, transformers' 2>/dev/null || "$python" -m pip install -q torch transformers
cargo build --release --locked -p forage
"$python" bench/generate/run.py --home "$home/generate" \
  --forage "${CARGO_TARGET_DIR:-target}/release/forage" --shapes "${@:-small 0.5b}"
