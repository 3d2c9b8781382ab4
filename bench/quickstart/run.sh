#!/usr/bin/env bash
# The quickstart over three seeds, each with a world of its own: time, memory, gain from GRPO and the random-reward twin.
# Usage: bench/quickstart/run.sh SCRATCH_FOLDER [more arguments of `forage quickstart`]
# With `--config FILE`, for instance configs/query-writer.toml, the first seed warms a policy up and the others start from it;
# all start from SCRATCH_FOLDER/start where there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/quickstart/run.sh SCRATCH_FOLDER}
shift
mkdir -p "$scratch"
forage=${FORAGE_BIN:-}
if [ -z "$forage" ]; then
  cargo build --release --locked -p forage
  forage="${CARGO_TARGET_DIR:-target}/release/forage"
fi
for seed in 1 2 3; do
  start=()
  if [[ " $* " == *" --config "* ]]; then
    start=(--set data.world.seed=$((1000000 + seed)))
    warm=$scratch/start
    [ -e "$warm" ] || warm=$scratch/seed-1/start
    if [ -e "$warm" ]; then start+=(--set policy.checkpoint="$warm"); else start+=(--from-scratch); fi
  fi
  "$forage" quickstart --seed "$seed" --out "$scratch/seed-$seed" "${start[@]}" "$@" >"$scratch/seed-$seed.log" 2>&1 &
  run=$!
  peak=0
  while kill -0 "$run" 2>/dev/null; do
    now=$(awk '/VmHWM/ {print $2}' "/proc/$run/status" 2>/dev/null || true)
    [ "${now:-0}" -gt "$peak" ] && peak=$now
    sleep 1
  done
  wait "$run"
  echo "$peak" >"$scratch/seed-$seed.peak_kb"
done
python3 - "$scratch" <<'PY'
import json, sys
rows = []
print(f"{'seed':>4} {'start':>6} {'trained':>8} {'gain':>7} {'95 % interval':>18} {'control':>8} {'95 % interval':>18} {'min':>6} {'GiB':>5}")
for seed in (1, 2, 3):
    verdict = json.load(open(f"{sys.argv[1]}/seed-{seed}/verdict.json"))
    peak = int(open(f"{sys.argv[1]}/seed-{seed}.peak_kb").read()) / 1024**2
    low, high = verdict["gain_interval"]
    clow, chigh = verdict["control_interval"]
    print(f"{seed:>4} {verdict['start']:>6.3f} {verdict['trained']:>8.3f} {verdict['gain']:>+7.3f} [{low:+.3f}, {high:+.3f}]"
          f" {verdict['control_gain']:>+8.3f} [{clow:+.3f}, {chigh:+.3f}] {verdict['minutes']:>6.1f} {peak:>5.2f}")
    sampled = {}
    if "sampled" in verdict:
        measure = "ndcg" if verdict.get("outcome") == "query" else "em"
        gain, control = (verdict["sampled"][part]["metrics"][measure] for part in ("gain", "control_gain"))
        cells = [f"{part['difference']['estimate']:+.3f} [{part['difference']['low']:+.3f}, {part['difference']['high']:+.3f}]"
                 for part in (gain, control)]
        sampled = {"sampled_low": gain["difference"]["low"], "sampled_control_low": control["difference"]["low"]}
        print(f"     sampled {gain['a']:.3f} {gain['b']:.3f}  gain {cells[0]}  control {cells[1]}")
    rows.append({"seed": seed, "gain": verdict["gain"], "low": low, "control_low": clow, "minutes": verdict["minutes"], "gib": peak} | sampled)
# A start that is never right greedily cannot lose anything there: the sampled episodes say what the twin did.
gained = lambda r: r["gain"] >= 0.2 and r["low"] > 0 and r.get("sampled_low", 0) > 0
control = lambda r: r["control_low"] <= 0 and r.get("sampled_control_low", 1) <= 0
held = all(gained(r) and control(r) and r["minutes"] <= 15 and r["gib"] <= 4 for r in rows)
print(json.dumps({"bench": "quickstart", "held": held, "figures": {str(r["seed"]): r for r in rows}}))
PY
