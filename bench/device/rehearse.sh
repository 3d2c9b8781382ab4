#!/usr/bin/env bash
# The whole GPU benchmark with small sizes under the stub driver, so that it works the first time on a borrowed machine.
# Usage: bench/device/rehearse.sh FORAGE RESULTS [PYTHON], after bench/device/run.sh
# PYTHON has torch, transformers and PEFT, without CUDA; where it has not (python3 by default), the peers are left out, which is said.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: bench/device/rehearse.sh FORAGE RESULTS [PYTHON]"
[ $# -le 3 ] || { echo "$usage" >&2; exit 2; }
forage=$(realpath "${1:?$usage}")
results=${2:?$usage}
python=${3:-python3}
home="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}/device"
export CUDA_PATH="$home/nvidia/cu13" LD_LIBRARY_PATH="$home/stub:$home/nvidia/cu13/lib"
mkdir -p "$results"
bash bench/gpu/run.sh "$forage" "$results" "$python" --rehearse --minutes 30 | tee "$results/first.log"
peers=("$python")
if grep -q '^a rehearsal does without peers' "$results/first.log"; then peers=(); fi

# With every row there nothing runs, not even the doctor.
bash bench/gpu/run.sh /bin/false "$results" "${peers[@]}" --rehearse >"$results/again.log"
if grep -q '^a rehearsal goes on' "$results/again.log"; then
  echo "rows that are there were asked for again; see $results/again.log" >&2
  exit 1
fi
# A row that was lost runs again, and one that fails is told by the status.
sed -i '/"id": "train-0.5b-full-forage"/d' "$results/rows.jsonl"
code=0
bash bench/gpu/run.sh /bin/false "$results" "${peers[@]}" --rehearse >"$results/failed.log" 2>&1 || code=$?
if [ "$code" != 1 ] || ! grep -q '^failed, .*: train-0.5b-full-forage$' "$results/failed.log"; then
  echo "a failed row ended with status $code; see $results/failed.log" >&2
  exit 1
fi

# What has to go to a borrowed machine.
strip -o "$results/stripped" "$forage"
mib=$(($(gzip -c "$results/stripped" | wc -c) >> 20))
echo "the stripped program: $mib MiB compressed, less than 64 allowed"
[ "$mib" -lt 64 ]
