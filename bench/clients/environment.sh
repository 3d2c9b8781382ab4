#!/usr/bin/env bash
# Speaks to the environment server with the clients of others: OpenEnv's over WebSocket, the MCP SDK in both protocols, plain
# HTTP, and through clients/python Gymnasium's own check, TRL's GRPOTrainer and verifiers. A few minutes once forage is built.
#
# The packages are installed once: openenv-core, mcp, gymnasium, trl with torch, verifiers. PARTS says what is run; by default
# PARTS=server,client,trl,verifiers.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
build
PARTS="${PARTS:-server,client,trl,verifiers}"
export FORAGE_BIN="$(realpath "$FORAGE")" HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
export TRL_EXPERIMENTAL_SILENCE=1
HELD=true
FIGURES=

# part NAME PYTHON ARGUMENTS...: runs the package's tests in one of the environments, with a line for each and a figure for all.
part() {
    local name="$1" python="$2" log="$WORK/$1.tests"
    shift 2
    (cd clients/python && "$python" -m pytest -v -p no:cacheprovider "$@") > "$log" 2>&1 || HELD=false
    sed -n 's/^\(tests[^ ]*\) PASSED.*/pass  \1/p; s/^\(tests[^ ]*\) \(FAILED\|ERROR\).*/FAIL  \1/p' "$log"
    local passed failed
    passed="$(grep -c '^tests.* PASSED' "$log" || true)"
    failed="$(grep -cE '^tests.* (FAILED|ERROR)' "$log" || true)"
    [ "$passed" -gt 0 ] || HELD=false
    [ "$failed" -eq 0 ] || tail -60 "$log" >&2
    FIGURES="$FIGURES, \"$name\": {\"passed\": $passed, \"failed\": $failed}"
}

venv environment-venv 'openenv, gymnasium, mcp, pytest' openenv-core==0.3.0 gymnasium==1.3.0 mcp==2.3.0 pytest==9.2.0
if [[ ",$PARTS," == *,server,* ]]; then
    "$FORAGE" world --pages 300 --out "$WORK/world" > /dev/null 2>&1
    QUESTIONS="$WORK/world/search-r1/train.jsonl"
    serve open env search-r1 --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --questions "$QUESTIONS"
    OPEN="$URL"
    echo secret > "$WORK/token"
    serve closed env search-r1 --pages 100 --token-file "$WORK/token"
    CLOSED="$URL"
    # The retriever of the third server is there when it starts, and then killed.
    "$FORAGE" index build --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --out "$WORK/index" > /dev/null 2>&1
    serve retriever retriever "$WORK/index"
    RETRIEVER="$SERVER"
    sed "s|QUESTIONS|$QUESTIONS|; s|RETRIEVER|$URL|" bench/clients/dead_retriever.toml > "$WORK/dead.toml"
    serve dead env --config "$WORK/dead.toml"
    kill -9 "$RETRIEVER"
    "$VENV/bin/python" bench/clients/test_environment.py "$OPEN" "$CLOSED" "$URL" "$QUESTIONS" | tee "$WORK/server.lines" || HELD=false
    FIGURES="$FIGURES, \"server\": $(tail -1 "$WORK/server.lines")"
fi
if [[ ",$PARTS," == *,client,* ]]; then
    part client "$VENV/bin/python" --ignore tests/test_trl.py --ignore tests/test_verifiers.py
fi
if [[ ",$PARTS," == *,trl,* ]]; then
    venv train-venv 'torch, transformers, trl, datasets, pytest' torch==2.15.0 transformers==5.23.0 trl==1.16.0 datasets peft pytest==9.2.0
    part trl "$VENV/bin/python" tests/test_trl.py
fi
if [[ ",$PARTS," == *,verifiers,* ]]; then
    venv verifiers-venv 'verifiers, pytest' verifiers==0.2.1 pytest==9.2.0
    part verifiers "$VENV/bin/python" tests/test_verifiers.py
fi
echo "{\"bench\": \"clients-environment\", \"held\": $HELD, \"figures\": {${FIGURES#, }}}"
[ "$HELD" = true ]
