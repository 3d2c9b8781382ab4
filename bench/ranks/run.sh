#!/usr/bin/env bash
# Trains with several ranks, kills one of them with SIGKILL at a random moment, again and again, and goes on each time with
# another number of ranks; then compares weights, moments and metrics with those of one process, bit for bit. Says how long the ranks
# that are left took to stop. Prints a line of JSON. Usage: [SHARDED=true] bench/ranks/run.sh [KILLS] [SEED]   (20 and 1 by default)
# With SHARDED=true the ranks share the moments, and a run goes on from the last checkpoint that was due.
set -euo pipefail
cd "$(dirname "$0")/../.."
kills=${1:-20}
RANDOM=${2:-1}
# Long enough that the run outlives its kills.
steps=${STEPS:-150}
sharded=${SHARDED:-false}
last=checkpoints/step-$(printf %06d "$steps")
. bench/program.sh
work=$(mktemp -d)
ranks=()
stop() {
    [ ${#ranks[@]} -eq 0 ] || kill -9 "${ranks[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT
# failed LOG: shows what a run said that failed, since the log goes with the folder.
failed() { tail "$work/$1.log" >&2; exit 1; }
now() { echo $(($(date +%s%N) / 1000000)); }
# In a subshell that becomes the program, so that a kill reaches it.
train() { exec "$forage" train configs/smoke.toml --set grpo.steps="$steps" --set grpo.checkpoint_every=3 --set grpo.keep_checkpoints=2 \
    --set grpo.evaluate_every=7 --set grpo.update.parts=4 --set grpo.update.optimizer.sharded="$sharded" \
    --set grpo.update.micro_batch_tokens=600 --set threads=1 "$@"; }
# together SIZE ARGUMENTS...: starts so many ranks; their processes are in `ranks`.
together() {
    local size=$1 port rank
    shift
    rm -f "$work"/rank-*.log
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    ranks=()
    for ((rank = 0; rank < size; rank++)); do
        train --ranks "$size" --rank "$rank" --rendezvous "127.0.0.1:$port" --rank-wait 10 "$@" >"$work/rank-$rank.log" 2>&1 &
        ranks+=($!)
    done
}
start=$(now)
(train --out "$work/whole" >"$work/whole.log" 2>&1) || failed whole
whole_ms=$(($(now) - start))
resume=
killed=0 longest_ms=0 ended=false
while [ "$killed" -lt "$kills" ] && [ "$ended" = false ]; do
    size=$((2 + RANDOM % 3))
    victim=$((RANDOM % size))
    together "$size" --out "$work/broken" $resume
    # Anywhere from before the ranks have met to about a twentieth of the run later.
    sleep "$(awk -v ms=$((20 + RANDOM % (600 + whole_ms / 20))) 'BEGIN { print ms / 1000 }')"
    if kill -9 "${ranks[victim]}" 2>/dev/null; then
        killed=$((killed + 1))
    else
        ended=true
    fi
    # Ranks that had not met yet wait for each other: nobody is lost, and it is us who end them.
    [ -e "$work/broken/metrics.jsonl" ] || kill -9 "${ranks[@]}" 2>/dev/null || true
    start=$(now)
    for rank in "${!ranks[@]}"; do
        code=0
        wait "${ranks[rank]}" 2>/dev/null || code=$?
        # 0 where it had ended before.
        [ "$code" = 1 ] || [ "$code" = 137 ] || [ "$code" = 0 ] || { echo "rank $rank ended with $code" >&2; failed "rank-$rank"; }
    done
    took=$(($(now) - start))
    # Those that had not met waited for the victim as long as they were told to.
    if ! grep -qs "cannot begin with its ranks" "$work"/rank-*.log && [ "$took" -gt "$longest_ms" ]; then longest_ms=$took; fi
    ranks=()
    if [ -e "$work/broken/metrics.jsonl" ] || [ -e "$work/broken/checkpoints" ]; then resume=--resume; else rm -rf "$work/broken"; fi
done
if [ ! -d "$work/broken/policy" ]; then
    together 3 --out "$work/broken" $resume
    for rank in "${!ranks[@]}"; do wait "${ranks[rank]}" || failed "rank-$rank"; done
    ranks=()
fi
same=true
# A run that ended before its kills has not been tried.
[ "$killed" -eq "$kills" ] || { same=false; echo "only $killed of $kills kills met a run" >&2; }
python3 bench/kill/same.py "$work" policy/model.safetensors "$last/optimizer.safetensors" "$last/state.json" || same=false
echo "{\"bench\": \"ranks\", \"sharded\": $sharded, \"held\": $same, \"kills\": $killed, \"longest_stop_ms\": $longest_ms, \"one_process_s\": $((whole_ms / 1000))}"
[ "$same" = true ]
