#!/usr/bin/env bash
# Speaks to the policy server with OpenAI's own Python package: completions, streams, tool calls, log-probabilities, errors; then
# 64 clients for a minute. About two minutes once forage is built.
#
# The model is trained here, in seconds, to give three answers by heart, one of them a tool call (trainer/examples/tool_caller.rs):
# what the server reads as a call was written by the model it serves.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environment; deleting it is always safe.
set -euo pipefail
cd "$(dirname "$0")/../.."
HOME_DIR="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
VENV="$HOME_DIR/openai-venv"
if ! "$VENV/bin/python" -c 'import openai' 2>/dev/null; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet openai==3.54.0
fi
cargo build --release --locked --quiet --bin forage
cargo build --release --locked --quiet -p forage-trainer --example tool_caller
RELEASE="${CARGO_TARGET_DIR:-target}/release"
WORK="$(mktemp -d)"
SERVER=
stop() {
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true
    [ -z "$SERVER" ] || wait "$SERVER" 2>/dev/null || true
    rm -rf "$WORK"
}
trap stop EXIT
"$RELEASE/examples/tool_caller" "$WORK/caller"
echo secret > "$WORK/token"
# A small cache is soon full, so that what grows afterwards is a leak.
"$RELEASE/forage" serve policy "$WORK/caller" --addr 127.0.0.1:0 --token-file "$WORK/token" --cache-mib 32 --sequences 64 \
    2> "$WORK/server.log" &
SERVER=$!
URL=
for _ in $(seq 200); do
    URL="$(sed -n 's/^listening on \(http:[^,]*\),.*/\1/p' "$WORK/server.log")"
    [ -z "$URL" ] || break
    sleep 0.05
done
[ -n "$URL" ] || { cat "$WORK/server.log" >&2; exit 1; }
"$VENV/bin/python" bench/clients/test_policy.py "$URL" secret "$SERVER" "${SECONDS_OF_LOAD:-60}"
