#!/usr/bin/env bash
# The two published rewards of SearchLM from one start, a policy that mostly joins all words of the question by AND: words per
# query, operators, NDCG, groups without variance and what the sentinel raised, over three seeds with a world of their own.
# Usage: bench/searchlm/run.sh SCRATCH_FOLDER [more arguments of `forage train`]
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/searchlm/run.sh SCRATCH_FOLDER}
shift
mkdir -p "$scratch"
. bench/program.sh
config=configs/searchlm-collapse.toml
start=$scratch/start
bench/searchlm/start.sh "$forage" "$scratch"
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
