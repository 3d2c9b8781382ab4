#!/usr/bin/env bash
# Speaks to the retrieval server as the clients of five published trainers and of FlashRAG do, over a generated corpus.
# About a minute once forage is built.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environment; deleting it is always safe.
set -euo pipefail
cd "$(dirname "$0")/../.."
HOME_DIR="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
VENV="$HOME_DIR/clients-venv"
if ! "$VENV/bin/python" -c 'import aiohttp, requests' 2>/dev/null; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet aiohttp==3.13.2 requests==2.32.5
fi
cargo build --release --locked --quiet --bin forage
FORAGE="${CARGO_TARGET_DIR:-target}/release/forage"
WORK="$(mktemp -d)"
SERVER=
stop() {
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true
    [ -z "$SERVER" ] || wait "$SERVER" 2>/dev/null || true
    rm -rf "$WORK"
}
trap stop EXIT
"$FORAGE" world --pages 2000 --out "$WORK/world" > /dev/null 2>&1
"$FORAGE" index build --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --out "$WORK/index" > /dev/null 2>&1
"$FORAGE" serve retriever "$WORK/index" --addr 127.0.0.1:0 2> "$WORK/server.log" &
SERVER=$!
URL=
for _ in $(seq 100); do
    URL="$(sed -n 's/^listening on \(http:[^,]*\),.*/\1/p' "$WORK/server.log")"
    [ -z "$URL" ] || break
    sleep 0.05
done
[ -n "$URL" ] || { cat "$WORK/server.log" >&2; exit 1; }
"$VENV/bin/python" bench/clients/test_clients.py "$URL" "$FORAGE" "$WORK/index" "$WORK/world/search-r1/wiki.jsonl"
