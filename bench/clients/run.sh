#!/usr/bin/env bash
# Speaks to the retrieval server as the clients of five published trainers and of FlashRAG do, over a generated corpus.
# About a minute once forage is built.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
venv clients-venv 'aiohttp, requests' aiohttp==3.13.2 requests==2.32.5
build
"$FORAGE" world --quiet --pages 2000 --out "$WORK/world" > /dev/null
"$FORAGE" index build --quiet --corpus "$WORK/world/search-r1/wiki.jsonl" --format search-r1 --out "$WORK/index" > /dev/null
serve retriever retriever "$WORK/index"
"$VENV/bin/python" bench/clients/test_clients.py "$URL" "$FORAGE" "$WORK/index" "$WORK/world/search-r1/wiki.jsonl"
