#!/usr/bin/env bash
# Makes the policy that bench/searchlm's runs begin with, in SCRATCH_FOLDER/start, where there is none yet: BASE (builtin:quickstart by
# default), which can copy names, learns to write queries in a world of other entities. A start of another BASE is not taken.
# Usage: bench/searchlm/start.sh FORAGE SCRATCH_FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
forage=$1
scratch=$2
start=$scratch/start
base=${BASE:-builtin:quickstart}
if [ -e "$start/policy/model.safetensors" ]; then
  made=$(cat "$scratch/base" 2>/dev/null || echo builtin:quickstart)
  [ "$made" = "$base" ] && exit
  echo "error: $start was made of $made, and BASE is $base; give another SCRATCH_FOLDER" >&2
  exit 1
fi
echo "$base" >"$scratch/base"
rm -rf "$scratch/world" "$start"
"$forage" world --pages 20000 --seed 101 --hops 1 0 0 0 --paraphrase 0.5 --near-names 0.1 --questions 6000 --out "$scratch/world"
python3 bench/searchlm/demonstrate.py "$scratch/world" 0.75 >"$scratch/demonstrations.jsonl"
"$forage" sft "$scratch/demonstrations.jsonl" --policy "$base" --out "$start" --epochs 2 --batch 64 \
  --learning-rate 1e-3 --validation 0.02 --validate-every 30
