#!/usr/bin/env bash
# Reranking the first ten hits of BM25 on SciFact and HotpotQA: NDCG@10 of the first stage and after the oracle (the most that these
# candidates allow), a random order, a cross-encoder, and a tiny policy before and after GRPO in the `rerank` environment. The policy is
# the built-in one, which first learns the form of an answer from random orders; it is trained on questions that share neither words nor
# relevant passages with the test questions, and once more on shuffled labels: which of a question's candidates are relevant is then
# drawn. Differences have 95 % intervals, paired by question. Prints a table for each corpus and a line of JSON.
# Usage: [FORAGE_BENCH_DATA=../shared/data] bench/rerank/run.sh SCRATCH_FOLDER [--python PYTHON --encoder FOLDER] [--rehearse]
# The cross-encoder starts from the BERT sentence encoder in FOLDER and is trained on the same questions, by a PYTHON that has PyTorch and
# transformers; without them its row is left out. --rehearse takes a few questions and steps, whose figures mean nothing. What is in the
# scratch folder already is not made again; it is of one config, data folder and encoder. `bench/run rerank` keeps the result, and brings
# both.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/rerank/run.sh SCRATCH_FOLDER [--python PYTHON --encoder FOLDER] [--rehearse]}
mkdir -p "$scratch"
. bench/program.sh
exec python3 bench/rerank/run.py --forage "$forage" --data "${FORAGE_BENCH_DATA:-../shared/data}" --scratch "$scratch" "${@:2}"
