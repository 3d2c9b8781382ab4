#!/usr/bin/env bash
# GRPO with a real vLLM (its CPU build) that samples, adapters and whole weights, tied and untied heads, f32 and bf16, a server that is
# killed in the middle, one with the fault of a stale head put back in, one that takes no weights: bench/vllm/run.sh [FORAGE [CASE...]].
# Ends with a line of JSON; exit status 1 unless `held`.
#
# vLLM and PyTorch are installed into FORAGE_BENCH_HOME the first time: 8 GB and some minutes. A case takes about two minutes on
# two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
shift || true
build

VENV="$HOME_DIR/vllm"
bash bench/vllm/install.sh "$VENV"
"$VENV/bin/python" bench/vllm/run.py "$(realpath "$FORAGE")" "$WORK" vllm "$VENV/bin/vllm" "$@"
