#!/usr/bin/env bash
# Speaks to the policy server with OpenAI's own Python package: completions, streams, tool calls, log-probabilities, errors; then
# 64 clients for a minute. About two minutes once forage is built.
#
# The model is trained here, in seconds, to give three answers by heart, one of them a tool call (trainer/examples/tool_caller.rs):
# what the server reads as a call was written by the model it serves.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
venv openai-venv openai openai==3.54.0
build
cargo build --release --locked --quiet -p forage-trainer --example tool_caller
"${CARGO_TARGET_DIR:-target}/release/examples/tool_caller" "$WORK/caller"
echo secret > "$WORK/token"
# A small cache is soon full, so that what grows afterwards is a leak.
serve policy policy "$WORK/caller" --token-file "$WORK/token" --cache-mib 32 --sequences 64
"$VENV/bin/python" bench/clients/test_policy.py "$URL" secret "$SERVER" "${SECONDS_OF_LOAD:-60}"
