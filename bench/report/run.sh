#!/usr/bin/env bash
# The report of a run with 10,000 trajectories, the retriever's search page, the page that follows a run and that of an environment
# server, in headless Chromium: time to interactive, filters, search, groups, comparison, keyboard alone, no console message, no
# request elsewhere; each at three widths, dark and light, without a violation that axe finds. Takes a scratch folder; screenshots
# are left in it. Some three minutes. With the folder of a finished quickstart it takes the guide's pictures of it instead.
#
# Usage: bench/report/run.sh SCRATCH_FOLDER [QUICKSTART_FOLDER]
# Pictures need tmux as well.
# Needs Chromium (CHROMIUM, or on the PATH), Node 18 or later, and playwright-core and axe-core, which npm fetches into the scratch folder.
# Exit code 75: one of them is not here and cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(realpath -m "${1:?usage: bench/report/run.sh SCRATCH_FOLDER [QUICKSTART_FOLDER]}")
here=$PWD/bench/report
mkdir -p "$scratch/shots"
CHROMIUM=${CHROMIUM:-$(command -v chromium chromium-browser google-chrome | head -n 1 || true)}
export CHROMIUM
[ -x "$CHROMIUM" ] || { echo "there is no browser: install chromium, or give its path as CHROMIUM" >&2; exit 75; }
node -e 'process.exit(Number.parseInt(process.versions.node, 10) < 18 ? 1 : 0)' || { echo "there is no Node 18 or later" >&2; exit 75; }
peers=(playwright-core@1.65.1 axe-core@4.14.1)
echo "beside ${peers[*]}"
if [ "$(cat "$scratch/node_modules/peers" 2>/dev/null)" != "${peers[*]}" ]; then
    timeout 120 npm install --silent --no-save --prefix "$scratch" "${peers[@]}" > "$scratch/npm.log" 2>&1 ||
        { cat "$scratch/npm.log" >&2; echo "npm can fetch nothing here" >&2; exit 75; }
    echo "${peers[*]}" > "$scratch/node_modules/peers"
fi
. bench/program.sh
forage=$(realpath "$forage")

if [ -n "${2:-}" ]; then
    run=$(realpath "$2")
    "$forage" runs report "$run" --out "$scratch/report.html"
    tmux -L "forage-$$" -f /dev/null new-session -d -x 150 -y 36 "'$forage' runs watch '$run/trained'"
    sleep 3
    tmux -L "forage-$$" capture-pane -p -e > "$scratch/screen.ansi"
    tmux -L "forage-$$" kill-server
    cp "$here/pictures.mjs" "$scratch"
    node "$scratch/pictures.mjs" "$scratch/report.html" "$scratch/screen.ansi" docs/images
    ls -l docs/images
    exit
fi

# Names of runs stand on the page, and nothing in this one lets a line end.
large=$scratch/large_with_a_name_that_nothing_breaks_but_a_page_that_must
rm -rf "$scratch/small" "$large"
"$forage" quickstart --config configs/smoke.toml --out "$scratch/small" > "$scratch/quickstart.log" 2>&1 ||
    { tail "$scratch/quickstart.log" >&2; exit 1; }
python3 "$here/multiply.py" "$scratch/small" "$large" 10000
time "$forage" runs report "$large" --out "$scratch/report.html"
ls -l "$scratch/report.html"

cd "$scratch"
cp "$here/drive.mjs" .
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT
# serve LOG ARGUMENTS: starts a server at a port of its own; `address` is where it listens.
serve() {
    local log=$1
    "$forage" serve "${@:2}" --addr 127.0.0.1:0 > "$log" 2>&1 &
    servers+=($!)
    for _ in $(seq 300); do
        address=$(sed -n 's|^listening on \(http://[^, ]*\).*|\1/|p' "$log")
        [ -z "$address" ] || return 0
        sleep 0.1
    done
    cat "$log" >&2
    return 1
}
serve server.log retriever small/index
retriever=$address
serve live.log run small/trained
run=$address
serve environment.log env search-r1
node drive.mjs "$scratch/report.html" "$retriever" "$run" "$address" "$scratch/shots"
