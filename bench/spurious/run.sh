#!/usr/bin/env bash
# Spurious rewards (Shao et al. 2025) at small scale. Three families of small policies are pre-trained on generated solutions of problems of
# two steps: one whose text mostly goes in steps, written as code that nothing runs, one whose text seldom does, and one between them whose
# steps are in words. GRPO then trains each under a true, majority, format, random and wrong reward, with clipping and without, for equally
# many steps. Prints the accuracy and conduct of starts, gains with 95 % intervals over seeds (each with policies that were pre-trained for
# it), a picture, and a line of JSON, whose `held` is true where the paper's claims about the random reward are met here.
# Hours on two cores, a run on each. What was made is not made again; a scratch folder is of one config, TASK, STEPS and ARCHITECTURE.
# Usage: [SEEDS=5] [STEPS=60] [FAMILIES="qwen llama olmo"] [REWARDS="true majority format random wrong"] bench/spurious/run.sh SCRATCH_FOLDER
# ARCHITECTURE=qwen2 makes all families of one architecture, so that they differ by their text alone. TASK holds arguments that every run and
# evaluation takes, without spaces inside: TASK='--set grpo.update.optimizer.learning_rate=3e-4'. CHECK=1 checks the configs and makes nothing.
# `bench/run spurious` keeps the result of the random reward in the families `qwen` and `llama`, `bench/run spurious-all` that of all.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/spurious/run.sh SCRATCH_FOLDER}
mkdir -p "$scratch"
. bench/program.sh
read -ra families <<<"${FAMILIES:-qwen llama olmo}"
read -ra rewards <<<"${REWARDS:-true majority format random wrong}"
PYTHONPATH=bench exec python3 -m spurious.run --forage "$forage" --config bench/spurious/config.toml --scratch "$scratch" \
  --steps "${STEPS:-60}" --seeds "${SEEDS:-5}" --task="${TASK:-}" --architecture="${ARCHITECTURE:-}" ${CHECK:+--check} \
  --families "${families[@]}" --rewards "${rewards[@]}"
