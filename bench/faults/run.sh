#!/usr/bin/env bash
# Every component under every fault, with real processes on loopback: the three clients over peers that fail, the three servers
# under clients that misbehave, run folders, checkpoints and indexes under full disks, signals and damaged bytes. Prints a
# table in Markdown, then a line of JSON. About ten minutes on two cores once forage is built.
# Usage: bench/faults/run.sh [FORAGE [PART...]]   (parts: folders, clients, servers; all by default)
#
# Needs Python alone. The disks that fill need root (mount), the clock that jumps libfaketime; without them limits on file
# sizes stand in, or the cell says that it was left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
shift || true
build
FORAGE_BIN="$(realpath "$FORAGE")" python3 bench/faults/run.py "$WORK" "$@"
