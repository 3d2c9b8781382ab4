# What the scripts of this folder share: sourced by them, from the repository's root.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environments; deleting it is always safe.
# FORAGE_BIN names a binary that is built already.
HOME_DIR="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
WORK="$(mktemp -d)"
SERVERS=()
stop() {
    for server in "${SERVERS[@]}"; do
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    done
    rm -rf "$WORK"
}
trap stop EXIT

# Fails where a package is not there in its exact version.
PINNED='import sys
from importlib.metadata import version

pins = [package.split("==") for package in sys.argv[1:]]
sys.exit(any(version(name.split("[")[0]).split("+")[0] != pin for name, pin in pins))'

# venv NAME MODULES PACKAGES...: a virtual environment with packages, all named NAME==VERSION, in VENV; installed where a module is
# missing or a package has another version than it is to have. Says which they are. Of PYTHON3, where that is set.
venv() {
    VENV="$HOME_DIR/$1"
    local modules="$2"
    shift 2
    echo "beside $*" >&2
    if ! "$VENV/bin/python" -c "import $modules" 2>/dev/null || ! "$VENV/bin/python" -c "$PINNED" "$@"; then
        [ -x "$VENV/bin/python" ] || "${PYTHON3:-python3}" -m venv "$VENV"
        "$VENV/bin/python" -m pip install --quiet "$@"
    fi
}

# build: the binary, in FORAGE.
build() {
    local forage
    . bench/program.sh
    FORAGE="$forage"
}

# serve NAME ARGUMENTS...: starts `forage serve` on a free port; its address is in URL, its process in SERVER.
serve() {
    local log="$WORK/$1.log"
    shift
    : > "$log"
    "$FORAGE" serve "$@" --addr 127.0.0.1:0 2> "$log" &
    SERVER=$!
    SERVERS+=("$SERVER")
    URL=
    for _ in $(seq 400); do
        URL="$(sed -n 's/^listening on \(http:[^,]*\),.*/\1/p' "$log")"
        [ -z "$URL" ] || return 0
        kill -0 "$SERVER" 2>/dev/null || break
        sleep 0.05
    done
    cat "$log" >&2
    return 1
}
