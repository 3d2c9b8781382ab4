#!/usr/bin/env bash
# GRPO with a real SGLang that samples on the processor, the cases of bench/vllm: bench/sglang/run.sh [FORAGE [CASE...]]. Ends with a line
# of JSON; exit status 1 unless `held`.
#
# There is no processor's build of SGLang's kernels among published wheels. Told of `--device cpu` and torch's own attention, the usual
# wheel computes without them, but for an import (`SHIM` of bench/vllm/run.py). It is installed into FORAGE_BENCH_HOME the first time:
# 10 GB and some minutes. A server starts in half a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
shift || true
build
venv sglang-venv 'sglang, safetensors' sglang==0.5.23
"$VENV/bin/python" bench/vllm/run.py "$(realpath "$FORAGE")" "$WORK" sglang "$VENV/bin/python" "$@"
