#!/usr/bin/env bash
# Four servers (retrieval, policy, the environments search-r1 and code-search) under good, bad and abandoned requests: memory of the last
# quarter at most 10 % above the second's, every request answered, as many descriptors at the end as at the start, no session left. Good
# ones are bags of words and boolean queries, whole and streamed completions, episodes over HTTP, WebSocket and MCP. Ends with a line of
# JSON.
# Usage: bench/faults/soak.sh [FORAGE [MINUTES]]   (60 by default)
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/clients/common.sh
FORAGE_BIN="${1:-${FORAGE_BIN:-}}"
build
FORAGE_BIN="$(realpath "$FORAGE")" python3 bench/faults/soak.py "$WORK" "${2:-60}"
