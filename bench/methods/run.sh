#!/usr/bin/env bash
# Losses, advantages and curricula on one task: each line of methods.txt trains the quickstart's policy under several seeds, each a
# world of its own, with as many episodes as every other, and is then held against the start and the first line on held-out
# questions. Prints a table with 95 % intervals (over seeds, Student's t; of one seed over questions, bootstrap) and a line of JSON.
# `a_lol` and `lipo` learn from as many recorded episodes of the start, of equal texts one, and have no reward in training.
# The reward in training is by a method's own rewards, of the episodes that it learns from (some begin with hints, say): methods are compared
# by exact match on held-out questions, which a config must have. Runs go side by side, one a core; minutes are those of the steps that
# count. A run that came to its end is not trained again. A scratch folder is of one config, TASK and number of steps.
# EM is the level of exact match to which questions are counted: what a choice of questions is about.
# Usage: [STEPS=200] [SEEDS=3] [EM=0.5] [TASK=ARGUMENTS] bench/methods/run.sh SCRATCH_FOLDER [CONFIG [METHODS]]
# METHODS are names of methods.txt; all without them. TASK holds arguments that every run and evaluation takes, without spaces inside.
# `bench/run methods` keeps the result of all lines on the quickstart's task; `methods-hops` that of credits of turns where they matter, on
# questions of two and three hops; `methods-ratios` that of the losses of the ratio where ratios leave 1.
# Whether an update harms a start that is good already, the policy of a careful oracle, which the study leaves among its baselines:
#   TASK='--set policy.checkpoint=STUDY/seed-1/baselines/demonstrations-DIGEST/round-1/policy' bench/methods/run.sh SCRATCH
#     configs/quickstart.toml dapo four-steps kl kl-strong no-std group-16
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/methods/run.sh SCRATCH_FOLDER [CONFIG [METHODS]]}
config=${2:-configs/quickstart.toml}
mkdir -p "$scratch"
. bench/program.sh
PYTHONPATH=bench exec python3 -m methods.run --forage "$forage" --config "$config" --scratch "$scratch" --steps "${STEPS:-200}" \
  --seeds "${SEEDS:-3}" --level "${EM:-0.5}" --task="${TASK:-}" --methods "${@:3}"
