#!/usr/bin/env bash
# Scripted episodes per second of each environment: in this process, over HTTP and over WebSocket at 1, 32 and 256 sessions,
# rewards included; clients and server share the machine. Beside it the same search turns in SkyRL-gym's own search environment,
# by threads, against `forage serve retriever` over the same passages.
# Usage: bench/environment/run.sh [SECONDS]   (of each measurement; 3 by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
source bench/clients/common.sh
seconds=${1:-3}
build
venv skyrl-gym-venv skyrl_gym skyrl-gym==0.4.0
cargo build --release --locked --quiet -p forage -p forage-env --example environment_load
"${CARGO_TARGET_DIR:-target}/release/examples/environment_load" "$seconds" "$WORK/episodes.jsonl" | tee "$WORK/rows.jsonl"
"$FORAGE" world --pages 2000 --seed 7 --out "$WORK/world" >/dev/null
"$FORAGE" index build --corpus "$WORK/world/beir" --format beir --out "$WORK/index" >/dev/null
serve retriever retriever "$WORK/index" --topk 3
"$VENV/bin/python" bench/environment/peer.py "$URL" "$WORK/episodes.jsonl" "$seconds" | tee -a "$WORK/rows.jsonl"
python3 - "$WORK/rows.jsonl" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rate = {(row["environment"], row["way"], row["sessions"]): row["episodes_per_s"] for row in rows}
ways = ["process", "http", "websocket"]
peer = "skyrl-gym 0.4.0 search"
print(f"{'environment':>24} {'way':>10} {'1':>8} {'32':>8} {'256':>8}")
for name in dict.fromkeys(row["environment"] for row in rows):
    for way in ways + ["python"]:
        if (name, way, 1) in rate:
            print(f"{name:>24} {way:>10} " + " ".join(f"{rate[name, way, sessions]:>8}" for sessions in (1, 32, 256)))
own = "forage/search-r1-v0"
ratios = {way: round(rate[own, way, 32] / max(rate[peer, "python", 32], 1), 1) for way in ways}
held = rate[own, "process", 256] >= 5000 and all(ratio > 1 for ratio in ratios.values())
print(json.dumps({"bench": "environment", "held": held, "figures": {"ratio_to_skyrl_gym_at_32": ratios, "episodes_per_s": rows}}))
PY
