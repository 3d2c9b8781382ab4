#!/usr/bin/env bash
# The four servers against their own descriptions: schemathesis makes requests of each route, valid ones and others, and compares
# statuses, headers and bodies with what /openapi.json says. Ends with a line of JSON.
# Usage: bench/clients/openapi.sh [EXAMPLES]   (100 for each operation by default; FORAGE_BIN names a built program)
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
venv openapi schemathesis schemathesis==4.32.5
build
FORAGE="$(realpath "$FORAGE")"
examples="${1:-100}"
"$FORAGE" world --pages 200 --seed 1 --out "$WORK/world" >/dev/null
"$FORAGE" index build --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --out "$WORK/index" >/dev/null
held=true figures=
check() {
    local name=$1
    shift
    serve "$name" "$@"
    # A server may refuse what a description cannot say (two fields that exclude each other), so a valid body may get 4xx; it
    # never gets another status, body or type of content than described.
    local result=true
    # It keeps what it found in the folder where it runs.
    (cd "$WORK" && exec "$VENV/bin/schemathesis" run "$URL/openapi.json" --url "$URL" --max-examples "$examples" --seed 1 --suppress-health-check all \
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
        >"$WORK/$name.report" 2>&1) || result=false
    sed -n '/= FAILURES =/,$p' "$WORK/$name.report"
    [ "$result" = true ] || held=false
    figures+="${figures:+,}\"$name\":$result"
}
check retriever retriever "$WORK/index"
check env env search-r1 --index "$WORK/index" --questions "$WORK/world/search-r1/train.jsonl"
check policy policy builtin:quickstart --cache-mib 32
"$FORAGE" eval smoke --policy oracle --limit 5 --out "$WORK/episodes.jsonl" >/dev/null
check run run "$WORK/episodes.jsonl"
printf '{"bench":"openapi","held":%s,"figures":{"schemathesis":"4.32.5","examples":%s,%s}}\n' "$held" "$examples" "$figures"
[ "$held" = true ]
