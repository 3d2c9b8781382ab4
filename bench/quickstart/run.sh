#!/usr/bin/env bash
# The quickstart over three seeds, each with a world of its own: time, memory, gain from GRPO and the control, which any search pays.
# Usage: bench/quickstart/run.sh SCRATCH_FOLDER [more arguments of `forage quickstart`]
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/quickstart/run.sh SCRATCH_FOLDER}
shift
mkdir -p "$scratch"
. bench/program.sh
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for seed in 1 2 3; do
  "$forage" quickstart --seed "$seed" --set data.world.seed=$((1000000 + seed)) --out "$scratch/seed-$seed" "$@" >"$scratch/seed-$seed.log" 2>&1 &
  run=$!
  peak=0
  while kill -0 "$run" 2>/dev/null; do
    now=$(awk '/VmHWM/ {print $2}' "/proc/$run/status" 2>/dev/null || true)
    [ "${now:-0}" -gt "$peak" ] && peak=$now
    sleep 1
  done
  wait "$run" || { tail "$scratch/seed-$seed.log" >&2; exit 1; }
  echo "$peak" >"$scratch/seed-$seed.peak_kb"
done
python3 bench/quickstart/table.py "$scratch"
