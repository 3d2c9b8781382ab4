#!/usr/bin/env bash
# Kills training with SIGKILL at random moments, resumes it each time, and compares weights, moments and metrics with those of
# an uninterrupted run, bit for bit. Usage: bench/kill/run.sh [KILLS] [SEED]   (30 and 1 by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
kills=${1:-30}
RANDOM=${2:-1}
# Long enough that the run outlives its kills.
steps=150
last=checkpoints/step-$(printf %06d "$steps")
. bench/program.sh
work=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
# failed LOG: shows what a run said that failed, since the log goes with the folder.
failed() { tail "$work/$1.log" >&2; exit 1; }
# In a subshell that becomes the program, so that a kill reaches it.
train() { exec "$forage" train configs/smoke.toml --set grpo.steps="$steps" --set grpo.checkpoint_every=3 --set grpo.keep_checkpoints=2 \
    --set grpo.evaluate_every=7 --set tensorboard=canonical "$@"; }
start=$(date +%s%N)
(train --out "$work/whole" >"$work/whole.log" 2>&1) || failed whole
whole_ms=$((($(date +%s%N) - start) / 1000000))
resume=
killed=0
while [ "$killed" -lt "$kills" ]; do
    train --out "$work/broken" $resume >>"$work/broken.log" 2>&1 &
    run=$!
    # Anywhere from before the first checkpoint to about a fortieth of the run later.
    sleep "$(awk -v ms=$((20 + RANDOM % (300 + whole_ms / 40))) 'BEGIN { print ms / 1000 }')"
    if kill -9 "$run" 2>/dev/null; then
        killed=$((killed + 1))
        wait "$run" 2>/dev/null || true
    else
        # It had ended: the rest of the kills would find nothing to do.
        wait "$run" || failed broken
        break
    fi
    [ -e "$work/broken/metrics.jsonl" ] || [ -e "$work/broken/checkpoints" ] && resume=--resume || rm -rf "$work/broken"
done
[ -d "$work/broken/policy" ] || (train --out "$work/broken" $resume >>"$work/broken.log" 2>&1) || failed broken
same=true
# A run that ended before its kills has not been tried.
[ "$killed" -eq "$kills" ] || { same=false; echo "only $killed of $kills kills met a run" >&2; }
python3 bench/kill/same.py "$work" policy/model.safetensors "$last/optimizer.safetensors" "$last/state.json" || same=false
echo "{\"bench\": \"kill\", \"held\": $same, \"kills\": $killed, \"uninterrupted_s\": $((whole_ms / 1000))}"
[ "$same" = true ]
