#!/usr/bin/env bash
# Attacks on the program: a table in Markdown with what each got before the limits of docs/security.md and gets now, then a line of
# JSON. A few minutes once forage is built; one of them needs root to give files to another user.
# Usage: bench/faults/attacks.sh [FORAGE [NAME...]]   (names of functions in attacks.py; all by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
shift || true
build
FORAGE_BIN="$(realpath "$FORAGE")" python3 bench/faults/attacks.py "$WORK" "$@"
