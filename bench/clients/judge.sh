#!/usr/bin/env bash
# The policy server as a judge's endpoint: OpenAI's Python package and `forage judge audit` against it. One model gives a
# verdict of the exact form to every question, one says a plain yes, one is not there. Half a minute once forage is built.
#
# openai and torch with transformers are installed once; the models are made here, in seconds.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
build
export HF_HUB_OFFLINE=1
venv train-venv 'torch, transformers' torch==2.15.0 transformers==5.23.0
"$VENV/bin/python" bench/clients/judge_model.py configs/quickstart "$WORK/exact" '{"correct": true, "approach": 80}' 2> "$WORK/log" ||
    { cat "$WORK/log" >&2; exit 1; }
"$VENV/bin/python" bench/clients/judge_model.py configs/quickstart "$WORK/chatty" 'Yes, the answer is right.' 2> "$WORK/log" ||
    { cat "$WORK/log" >&2; exit 1; }
serve exact policy "$WORK/exact" --name judge --cache-mib 64
EXACT="$URL"
serve chatty policy "$WORK/chatty" --name judge --cache-mib 64
venv openai-venv openai openai==3.54.0
"$VENV/bin/python" bench/clients/test_judge.py "$FORAGE" "$EXACT" "$URL" "$WORK"
