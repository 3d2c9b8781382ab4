#!/usr/bin/env bash
# Which difference from the published run is the cause of what becomes of boolean operators under SearchLM's second reward: the conditions of
# conditions.txt, all or those in NAMES, over seeds with a world of their own, from one start. A table of the share of queries with
# operators over the steps, of what the operators of held-out queries add in precision, and of NDCG, then a line of JSON that holds where at
# least one condition keeps operators that are of use. Runs go side by side, one a core; those that came to their end are not made again.
# BASE names another policy to make the start of, a larger one say; SEEDS are "1 2 3" unless given.
# Usage: [SEEDS="1 2 3"] [BASE=POLICY] bench/searchlm/conditions.sh SCRATCH_FOLDER [NAMES...]
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${1:?usage: bench/searchlm/conditions.sh SCRATCH_FOLDER [NAMES...]}
mkdir -p "$scratch"
. bench/program.sh
bench/searchlm/start.sh "$forage" "$scratch"
PYTHONPATH=bench exec python3 -m searchlm.conditions --seeds "${SEEDS:-1 2 3}" "$forage" "$scratch" "${@:2}"
