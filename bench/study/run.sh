#!/usr/bin/env bash
# Is the gain real? One config under several seeds, each beside twins on a random reward, a reward for any answer, one for
# any search, shuffled and wrong labels, and beside baselines of as many episodes and of as many seconds: gains, leads, pass@k, conduct by hops, the verdict
# in words, and a line of JSON with every bar of a convincing study (bench/study/bars.py), which holds where all are met.
# Hours on two cores. STUDY holds the arguments of `forage eval --controls`, without spaces inside; STUDY= asks for no baselines.
# Rankings have other TWINS and baselines: random,any_search, and best_of_8, the four of fine-tuning, keywords.
# TRAINER is the program that trains, and FORAGE_BIN the one that evaluates: what an earlier program trained in hours need not be trained again.
# Usage: bench/study/run.sh SCRATCH_FOLDER [CONFIG [SEEDS [TWINS [more arguments of `forage train`]]]]
# A run that came to its end is not trained again; one of another program, config, twins or arguments ends the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/study/run.sh SCRATCH_FOLDER [CONFIG [SEEDS [TWINS [ARGUMENTS]]]]}
config=${2:-configs/quickstart.toml}
seeds=${3:-1 2 3 4 5 6 7 8 9 10}
twins=${4:-random,format_only,any_search,shuffled,wrong}
methods='["forced_search","best_of_8","majority_of_8","rejection_sampling","rejection_sampling_timed","demonstrations_timed","demonstrations"]'
read -ra study <<<"${STUDY---set evaluation.samples=64 --set evaluation.baselines=$methods}"
mkdir -p "$scratch"
. bench/program.sh
. bench/side_by_side.sh
# Everything that decides a run beside its seed.
trainer=${TRAINER:-$forage}
what=$(printf '%s\n' "$twins" "${@:5}" | cat "$trainer" "$config" - | sha256sum)
runs=()
for seed in $seeds; do
  run=$scratch/seed-$seed
  runs+=("$run")
  if [ -e "$run/metrics.jsonl" ] && [ "$(cat "$scratch/seed-$seed.made" 2>/dev/null)" != "$what" ]; then
    echo "error: $run is of another program, config, twins or arguments; delete it, or name another folder" >&2
    exit 1
  fi
done
# train SEED ARGUMENTS...: every seed has a world of its own.
train() {
  local seed=$1 run=$scratch/seed-$1 again=()
  [ ! -e "$run/done" ] || return 0
  echo "$what" >"$scratch/seed-$seed.made"
  [ ! -e "$run/metrics.jsonl" ] || again=(--resume)
  logged "$scratch/seed-$seed.log" "$trainer" train "$config" --set threads=1 --set seed="$seed" --set data.world.seed=$((1000000 + seed)) \
    --out "$run" --twins "$twins" "${again[@]}" "${@:2}"
  touch "$run/done"
}
# Baselines of as many seconds are given what a run took beside the others, and `eval --controls` has as many side by side.
for seed in $seeds; do beside train "$seed" "${@:5}"; done
together
again=()
# The first runs may be done already, and a folder may have no record yet.
for run in "${runs[@]}"; do
  [ ! -e "$run/evaluation.partial/evaluation.resume.json" ] || again=(--resume)
done
"$forage" eval --controls "${runs[@]}" --set threads=0 "${study[@]}" "${again[@]}" --json >"$scratch/study.json"
PYTHONPATH=bench python3 -m study.bars "$scratch/study.json" "${runs[@]}"
