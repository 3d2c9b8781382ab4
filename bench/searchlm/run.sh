#!/usr/bin/env bash
# The two published rewards of SearchLM from one start, a policy that mostly joins all words of the question by AND: words per
# query, operators, NDCG, groups without variance and what the sentinel raised, over three seeds with a world of their own.
# Usage: bench/searchlm/run.sh SCRATCH_FOLDER [more arguments of `forage train`]
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/searchlm/run.sh SCRATCH_FOLDER}
shift
mkdir -p "$scratch"
forage=${FORAGE_BIN:-}
if [ -z "$forage" ]; then
  cargo build --release --locked -p forage
  forage="${CARGO_TARGET_DIR:-target}/release/forage"
fi
config=configs/searchlm-collapse.toml
start=$scratch/start
# The start: the built-in policy, which can copy names, learns to write queries in a world of other entities.
if [ ! -e "$start/policy/model.safetensors" ]; then
  rm -rf "$scratch/world" "$start"
  "$forage" world --pages 20000 --seed 101 --hops 1 0 0 0 --paraphrase 0.5 --near-names 0.1 --questions 6000 --out "$scratch/world"
  python3 bench/searchlm/demonstrate.py "$scratch/world" 0.75 >"$scratch/demonstrations.jsonl"
  "$forage" sft "$scratch/demonstrations.jsonl" --policy builtin:quickstart --out "$start" --epochs 2 --batch 64 --learning-rate 1e-3 \
    --validation 0.02 --validate-every 30
fi
for seed in 1 2 3; do
  world=(--set seed="$seed" --set data.world.seed=$((1000000 + seed)))
  "$forage" eval "$config" "${world[@]}" --set policy.checkpoint="$start/policy" --json >"$scratch/start-$seed.json"
  for reward in v1 v2; do
    out=$scratch/$reward-$seed
    rm -rf "$out"
    # The sentinel only warns, so that all steps are seen.
    options=("${world[@]}" --set policy.checkpoint="$start/policy" --set grpo.sentinel.stop=false)
    if [ "$reward" = v2 ]; then
      options+=(--set reward.searchlm_v1=0 --set reward.searchlm_v2=1 --set grpo.group_size=8 --set grpo.prompts_per_step=16)
    fi
    "$forage" train "$config" "${options[@]}" --out "$out" "$@"
    "$forage" eval "$config" "${world[@]}" --set policy.checkpoint="$out/policy" --json >"$out/evaluation.json"
  done
done
python3 bench/searchlm/table.py "$scratch"
