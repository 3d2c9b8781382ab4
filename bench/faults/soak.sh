#!/usr/bin/env bash
# The three servers under good, bad and abandoned requests: memory of the last quarter within 10 % of the second's, every request
# answered, as many descriptors at the end as at the start. Ends with a line of JSON.
# Usage: bench/faults/soak.sh [FORAGE [MINUTES]]   (60 by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
build
FORAGE_BIN="$(realpath "$FORAGE")" python3 bench/faults/soak.py "$WORK" "${2:-60}"
