#!/usr/bin/env bash
# Remote retrievers against real servers: Chroma (vectors) and Anserini's REST server (Lucene), on the SciFact corpus.
# Chroma's answers through forage must be those Chroma gives to a plain client, with the scores of an exact search;
# Anserini's must be forage's own BM25. Needs SCIFACT (a BEIR folder with queries.test.jsonl), with a default. The last line is JSON;
# exit status 1 unless `held`.
set -euo pipefail
cd "$(dirname "$0")/../.."
SCIFACT=${SCIFACT:-../shared/data/scifact}
test -f "$SCIFACT/corpus.jsonl" || { echo "error: no SciFact corpus at $SCIFACT; set SCIFACT to the BEIR folder" >&2; exit 1; }
. bench/clients/common.sh
venv chroma-venv chromadb chromadb==1.5.9
# The benchmarks' own, as `JAVA -cp JAR`.
ANSERINI=$(PYTHONPATH=bench python3 -c 'import sys; from harness.peers import Anserini; print(*Anserini().java(sys.argv[1]))' "$HOME_DIR")
read -r JAVA _ JAR <<<"$ANSERINI"

cargo build --release --locked --quiet -p forage-retriever --example search_many
"$VENV/bin/python" bench/remote/compare.py --scifact "$SCIFACT" --chroma "$VENV/bin/chroma" \
  --java "$JAVA" --jar "$JAR" --search "${CARGO_TARGET_DIR:-target}"/release/examples/search_many
