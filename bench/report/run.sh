#!/usr/bin/env bash
# The report of a run with 10,000 trajectories, the retriever's search page and the page that follows a run, in headless Chromium:
# time to interactive, filters, search, groups, comparison, keyboard alone, no console message, no request elsewhere; each at
# three widths, dark and light, without a violation that axe finds. Takes a scratch folder; screenshots are left in it. Some
# three minutes.
#
# Needs Chromium (CHROMIUM, or on the PATH), Node 18 or later, and playwright-core and axe-core, which npm fetches into the scratch folder.
# Exit code 75: one of them is not here and cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(realpath -m "${1:?usage: bench/report/run.sh SCRATCH_FOLDER}")
here=$PWD/bench/report
mkdir -p "$scratch/shots"
CHROMIUM=${CHROMIUM:-$(command -v chromium chromium-browser google-chrome | head -n 1 || true)}
export CHROMIUM
[ -x "$CHROMIUM" ] || { echo "there is no browser: install chromium, or give its path as CHROMIUM" >&2; exit 75; }
node -e 'process.exit(Number.parseInt(process.versions.node, 10) < 18 ? 1 : 0)' || { echo "there is no Node 18 or later" >&2; exit 75; }
if [ ! -d "$scratch/node_modules/axe-core" ]; then
    timeout 120 npm install --silent --no-save --prefix "$scratch" playwright-core@1.65.1 axe-core@4.14.1 > "$scratch/npm.log" 2>&1 ||
        { cat "$scratch/npm.log" >&2; echo "npm can fetch nothing here" >&2; exit 75; }
fi
forage=${FORAGE_BIN:-}
if [ -z "$forage" ]; then
    cargo build --release --locked --quiet -p forage
    forage="${CARGO_TARGET_DIR:-target}/release/forage"
fi
forage=$(realpath "$forage")

rm -rf "$scratch/small" "$scratch/large"
"$forage" quickstart --config configs/smoke.toml --out "$scratch/small" > "$scratch/quickstart.log" 2>&1
python3 "$here/multiply.py" "$scratch/small" "$scratch/large" 10000
time "$forage" report "$scratch/large" --out "$scratch/report.html"
ls -l "$scratch/report.html"

cd "$scratch"
cp "$here/drive.mjs" .
"$forage" serve retriever small/index --addr 127.0.0.1:18099 > server.log 2>&1 &
server=$!
"$forage" serve run small/trained --addr 127.0.0.1:18098 > live.log 2>&1 &
live=$!
trap 'kill "$server" "$live"' EXIT
for port in 18099 18098; do
    for _ in $(seq 100); do
        curl --silent --fail --output /dev/null "http://127.0.0.1:$port/readyz" && break
        sleep 0.1
    done
done
node drive.mjs "$scratch/report.html" http://127.0.0.1:18099/ http://127.0.0.1:18098/ "$scratch/shots"
