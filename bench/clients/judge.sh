#!/usr/bin/env bash
# A server as a judge's endpoint, OpenAI's Python package and `forage judge audit` against it: bench/clients/judge.sh [forage|vllm]. One
# model gives a verdict of the exact form to every question, one thinks first, one says a plain yes, one is not there. Half a minute once
# forage is built; with vLLM's build for processors, which takes 8 GB, some minutes.
#
# openai and torch with transformers are installed once; the models are made here, in seconds.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
PEER="${1:-forage}"
[ "$PEER" = forage ] || [ "$PEER" = vllm ] || { echo "usage: bench/clients/judge.sh [forage|vllm]" >&2; exit 2; }
build
export HF_HUB_OFFLINE=1
[ "$PEER" = forage ] || bash bench/vllm/install.sh "$HOME_DIR/vllm"
venv train-venv 'torch, transformers' torch==2.15.0 transformers==5.23.0
PORT=18400

# serve_vllm FOLDER: as `serve`, by vLLM.
serve_vllm() {
    PORT=$((PORT + 1))
    URL="http://127.0.0.1:$PORT"
    VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_DO_NOT_TRACK=1 OMP_NUM_THREADS=2 "$HOME_DIR/vllm/bin/vllm" serve "$1" \
        --served-model-name judge --host 127.0.0.1 --port "$PORT" --dtype float32 --max-model-len 8192 --enforce-eager > "$1.log" 2>&1 &
    SERVER=$!
    SERVERS+=("$SERVER")
    for _ in $(seq 600); do
        ! curl -sf "$URL/health" > /dev/null || return 0
        kill -0 "$SERVER" 2>/dev/null || break
        sleep 1
    done
    tail -40 "$1.log" >&2
    return 1
}

# judge NAME PIECE...: a model that writes the pieces one behind the other; its server's address is in URL.
judge() {
    "$VENV/bin/python" bench/clients/judge_model.py configs/quickstart "$WORK/$1" "${@:2}" 2> "$WORK/log" || { cat "$WORK/log" >&2; exit 1; }
    if [ "$PEER" = vllm ]; then
        serve_vllm "$WORK/$1"
    else
        serve "$1" policy "$WORK/$1" --name judge --cache-mib 64
    fi
}

VERDICT='{"correct": true, "approach": 80}'
judge exact "$VERDICT"
EXACT="$URL"
judge thinking '<think>' 'It says so.' '</think>' "$VERDICT"
THINKING="$URL"
judge chatty 'Yes, the answer is right.'
venv openai-venv openai openai==3.54.0
"$VENV/bin/python" bench/clients/test_judge.py "$FORAGE" "$PEER" "$EXACT" "$THINKING" "$URL" "$WORK"
