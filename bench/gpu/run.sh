#!/usr/bin/env bash
# Generation and training on a GPU beside transformers and PEFT there (random weights), and a small GRPO run on the GPU and the
# processor. Usage: bench/gpu/run.sh FORAGE GENERATE_BENCH TRAIN_BENCH [PYTHON]
# The programs are built with
#   cargo build --release -p forage --features cuda && cargo build --release -p forage-trainer --features cuda --example generate_bench \
#     --example train_bench
# PYTHON has torch with CUDA, transformers and PEFT; without one the peer's columns stay empty. The machine needs the NVIDIA driver, NVRTC
# and the CUDA headers; CUDA_PATH is taken from nvcc when it is unset. The table goes to docs/gpu.md with the date and the commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: bench/gpu/run.sh FORAGE GENERATE_BENCH TRAIN_BENCH [PYTHON]"
forage=${1:?$usage}
bench=${2:?$usage}
train=${3:?$usage}
python=${4:-}
if [ -z "${CUDA_PATH:-}" ] && command -v nvcc >/dev/null; then
  CUDA_PATH=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  export CUDA_PATH
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for device in cpu cuda:0; do
  "$forage" train configs/quickstart.toml --device "$device" --out "$scratch/${device%%:*}" \
    --set grpo.steps=10 --set grpo.evaluate_every=0
done
python3 bench/gpu/generate.py "$bench" "$scratch" $python
python3 bench/gpu/train.py "$train" "$scratch" $python
python3 - "$scratch" <<'PY'
import json, sys
means = {}
for device in ("cpu", "cuda"):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{device}/metrics.jsonl")][3:]
    means[device] = {key: sum(row[key] for row in rows) / len(rows) for key in ("time/rollout_s", "time/update_s")}
    means[device]["mismatch"] = max(row.get("mismatch/ratio_deviation_max", 0) for row in rows)
print(f"{'':20}{'cpu':>10}{'cuda':>10}{'ratio':>10}")
for key in ("time/rollout_s", "time/update_s"):
    print(f"{key:20}{means['cpu'][key]:10.3f}{means['cuda'][key]:10.3f}{means['cpu'][key] / means['cuda'][key]:10.2f}")
generation = json.load(open(f"{sys.argv[1]}/generate.json"))
training = json.load(open(f"{sys.argv[1]}/train.json"))
held = means["cuda"]["mismatch"] < 1e-2
print(json.dumps({"bench": "gpu", "held": held, "figures": {"run": means, "generate": generation, "train": training}}))
PY
