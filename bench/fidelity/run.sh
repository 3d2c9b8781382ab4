#!/usr/bin/env bash
# The sandbox's Python against CPython 3.11: HumanEval, MBPP, CRUXEval, 8,495 programs that models wrote, and 315 programs that
# are not valid Python. Prints every difference. CPython's side takes about five minutes the first time and is kept.
#
# Usage: bench/fidelity/run.sh [--differences FILE.md] [--command "forage python"] [--jobs N]
# Needs the data folder (../shared/data from the tree, or FORAGE_BENCH_DATA) and CPython 3.11 (PYTHON, by default python3).
set -euo pipefail
cd "$(dirname "$0")/../.."
BENCH_HOME="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
command=()
if [[ " $* " != *" --command"* ]]; then
    . bench/program.sh
    command=(--command "$forage python")
fi
exec "${PYTHON:-python3}" bench/fidelity/compare.py --data "${FORAGE_BENCH_DATA:-../shared/data}" \
    --home "$BENCH_HOME/fidelity" "${command[@]}" "$@"
