#!/usr/bin/env bash
# Speaks to the environment server with the clients of others: OpenEnv's over WebSocket (0.3 and 0.10), the MCP SDK in both
# protocols, plain HTTP, and through clients/python Gymnasium's own check, TRL's GRPOTrainer, verifiers, verl's agent loop workers,
# SkyRL-gym and NeMo-Gym's agent, the last four with real policies. Some ten minutes once forage is built and they are installed.
#
# The packages are installed once, in an environment for each part: 25 GB, PyTorch for the greater part of it. PARTS says what is run; by
# default all. SkyRL-gym and NeMo-Gym need Python 3.12: PYTHON312, or `python3.12`, or one of pyenv's.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
ALL=server,client,openenv,trl,verifiers,taskset,verl,skyrl,nemo
PARTS="${PARTS:-$ALL}"
for PART in ${PARTS//,/ }; do
    [[ ",$ALL," == *,"$PART",* ]] || { echo "no part is called $PART; there are: ${ALL//,/, }" >&2; exit 2; }
done
[ -n "${PART:-}" ] || { echo "PARTS names no part; there are: ${ALL//,/, }" >&2; exit 2; }
build
export FORAGE_BIN="$(realpath "$FORAGE")" HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
export TRL_EXPERIMENTAL_SILENCE=1
HELD=true
FIGURES=
TABLE=$'peer\tversion\twhat ran\tpassed\tskipped\theld'

wanted() {
    [[ ",$PARTS," == *,$1,* ]]
}

# row PACKAGES WHAT PASSED SKIPPED HELD: a row of the table, with the versions of the packages in VENV.
row() {
    local versions
    versions="$("$VENV/bin/python" -c 'import sys; from importlib.metadata import version; print(", ".join(map(version, sys.argv[1:])))' $1)"
    TABLE+=$'\n'$(printf '%s\t' "${1// /, }" "$versions" "$2" "$3" "$4")$5
}

# part NAME PACKAGES WHAT TESTS...: runs tests of the package in VENV, with a line for each and a row for all.
part() {
    local name="$1" packages="$2" what="$3" log="$WORK/$1.tests" held=true
    shift 3
    (cd clients/python && "$VENV/bin/python" -m pytest -v -rs -p no:cacheprovider "$@") > "$log" 2>&1 || held=false
    sed -n 's/^\(tests[^ ]*\) PASSED.*/pass  \1/p; s/^\(tests[^ ]*\) \(FAILED\|ERROR\).*/FAIL  \1/p; s/^SKIPPED /skip  /p' "$log"
    local passed failed skipped
    passed="$(grep -c '^tests.* PASSED' "$log" || true)"
    failed="$(grep -cE '^tests.* (FAILED|ERROR)' "$log" || true)"
    # Whole files too, which have no line above.
    skipped="$(awk -F '[][]' '/^SKIPPED \[/ { skipped += $2 } END { print skipped + 0 }' "$log")"
    [ "$passed" -gt 0 ] || held=false
    [ "$held" = true ] || { HELD=false; tail -60 "$log" >&2; }
    FIGURES="$FIGURES, \"$name\": {\"passed\": $passed, \"failed\": $failed, \"skipped\": $skipped}"
    row "$packages" "$what" "$passed" "$skipped" "$held"
}

if wanted server || wanted client; then
    venv environment-venv 'openenv, gymnasium, mcp, pytest' openenv-core==0.3.0 gymnasium==1.3.0 mcp==2.3.0 pytest==9.2.0
fi
if wanted server; then
    "$FORAGE" world --quiet --pages 300 --out "$WORK/world" > /dev/null
    QUESTIONS="$WORK/world/search-r1/train.jsonl"
    serve open env search-r1 --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --questions "$QUESTIONS"
    OPEN="$URL"
    echo secret > "$WORK/token"
    serve closed env search-r1 --pages 100 --token-file "$WORK/token"
    CLOSED="$URL"
    # The retriever of the third server is there when it starts, and then killed.
    "$FORAGE" index build --quiet --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --out "$WORK/index" > /dev/null
    serve retriever retriever "$WORK/index"
    RETRIEVER="$SERVER"
    sed "s|QUESTIONS|$QUESTIONS|; s|RETRIEVER|$URL|" bench/clients/dead_retriever.toml > "$WORK/dead.toml"
    serve dead env --config "$WORK/dead.toml"
    kill -9 "$RETRIEVER"
    SERVED=true
    "$VENV/bin/python" bench/clients/test_environment.py "$OPEN" "$CLOSED" "$URL" "$QUESTIONS" | tee "$WORK/server.lines" || SERVED=false
    [ "$SERVED" = true ] || HELD=false
    FIGURES="$FIGURES, \"server\": $(tail -1 "$WORK/server.lines")"
    row 'openenv-core mcp' "GenericEnvClient, MCP Client" "$(grep -c '^pass' "$WORK/server.lines")" 0 "$SERVED"
fi
if wanted client; then
    part client gymnasium "check_env, vector; the client" tests/test_client.py tests/test_gymnasium.py tests/test_tokens.py tests/test_slime.py \
        tests/test_verl.py
fi
if wanted openenv; then
    venv openenv-venv 'openenv, gymnasium, pytest' openenv==0.10.0 gymnasium==1.4.0 pytest==9.2.0
    part openenv 'openenv gymnasium' "GenericEnvClient, EnvClient; check_env" tests/test_real_openenv.py tests/test_gymnasium.py
fi
if wanted trl; then
    venv train-venv 'torch, transformers, trl, datasets, pytest' torch==2.15.0 transformers==5.23.0 trl==1.16.0 datasets==5.2.0 peft==0.21.2 pytest==9.2.0
    part trl trl "GRPOTrainer, steps on the processor" tests/test_trl.py
fi
if wanted verifiers; then
    venv verifiers-venv 'verifiers, pytest' verifiers==0.2.1 pytest==9.2.0
    part verifiers verifiers "evaluate, with a real policy too" tests/test_verifiers.py tests/test_real_verifiers.py
fi
if wanted taskset; then
    venv taskset-venv 'verifiers.v1, pytest' verifiers==0.4.0 pytest==9.2.0
    part taskset verifiers "vf-eval, tasksets, with a real policy too" tests/test_taskset.py tests/test_real_taskset.py
fi
if wanted verl; then
    venv verl-venv 'verl, cachetools, uvicorn, pytest' verl==0.9.1 torch==2.11.0 transformers==5.9.0 cachetools==8.0.2 fastapi==0.165.0 \
        uvicorn==0.54.0 pytest==9.2.0
    part verl verl "AgentLoopManager under Ray, with a real policy" tests/test_real_verl.py
fi
if wanted skyrl || wanted nemo; then
    for PYTHON3 in "${PYTHON312:-python3.12}" "$HOME"/.pyenv/versions/3.12.*/bin/python; do
        ! "$PYTHON3" -c '' 2> /dev/null || break
    done
fi
if wanted skyrl; then
    venv skyrl-venv 'skyrl_gym, pytest' skyrl-gym==0.4.0 pytest==9.2.0
    part skyrl skyrl-gym "registry, SearchEnv, with a real policy" tests/test_real_skyrl.py
fi
if wanted nemo; then
    venv nemo-venv 'nemo_gym, pytest' nemo-gym==0.4.0 pytest==9.2.0
    part nemo nemo-gym "SimpleAgent, VLLMModel, rollout collection" tests/test_real_nemo_gym.py
fi
echo "$TABLE" | column -t -s $'\t'
echo "{\"bench\": \"clients-environment\", \"held\": $HELD, \"figures\": {${FIGURES#, }}}"
[ "$HELD" = true ]
