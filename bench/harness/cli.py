"""The command line of `bench/run`."""

import argparse
import json
import sys
import tempfile
import traceback

from harness import docs
from harness.declare import ROOT, BenchError, load, names
from harness.measure import afford, left, measure
from harness.workspace import Workspace

HELP = """\
Measures benchmarks, forage and its peers by turns, and writes bench/results/NAME.json.

Status 1 and a message when a side fails, a declared figure is missing or no number, a cached input belongs to another workload, what
must be equal is not, or other programs take more than a fifth of a core as a round begins, for two minutes. An aim that is missed is
a result: `held` is false, the status 0. With --busy it is measured beside other programs, and `held` is null.

Benchmarks that show how cost grows have sizes. Each size is kept in FORAGE_BENCH_HOME when it is measured: a run that was stopped, or one of
more sizes, goes on from there, as long as commit, programs, scripts and machine are the same.

Others have parameters, which --set changes: the result is then written below FORAGE_BENCH_HOME, and no document shows it. Where a workload
may be too large for a machine, what it takes is said before anything is made.

FORAGE_BENCH_HOME (~/.cache/forage-bench) keeps peers and inputs; it can be deleted at any time. FORAGE_BENCH_DATA names the data
folder (../shared/data)."""


def arguments(given):
    parser = argparse.ArgumentParser(prog="bench/run", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="every benchmark")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--rehearse", action="store_true", help="one round of a small workload; nothing is written to bench/results")
    parser.add_argument("--sizes", metavar="SIZE,...|all", help="of a benchmark that grows; by default those that take an hour")
    parser.add_argument("--set", metavar="NAME=NUMBER", action="append", default=[], help="another parameter of the workload")
    parser.add_argument("--busy", action="store_true", help="beside other programs too; what they disturb holds nothing")
    parser.add_argument("--built", metavar="FOLDER", help="programs that are built already, for instance target/release; the result says so")
    parser.add_argument("--docs", action="store_true", help="write the blocks `<!-- bench:NAME -->` of docs/*.md from bench/results")
    parser.add_argument("--check", action="store_true", help="with --docs: only say whether they differ")
    given = parser.parse_args(given)
    chosen = bool(given.names) + given.all + given.list + given.docs
    if chosen != 1:
        parser.error("give names, or one of --all, --list and --docs")
    if given.rehearse and given.sizes:
        parser.error("a rehearsal has a size of its own")
    if given.set and (given.rehearse or len(given.names) != 1):
        parser.error("--set goes with the name of one benchmark, which is not rehearsed")
    if given.check and not given.docs:
        parser.error("--check goes with --docs")
    return given


def one(name, given, root):
    """Measures one benchmark and writes its result."""
    sizes = given.sizes if given.sizes in (None, "all") else given.sizes.split(",")
    benchmark = load(name, root, "rehearsed" if given.rehearse else sizes)
    parameters = benchmark.with_parameters(given.set) | (dict(benchmark.rehearsal) if given.rehearse else {})
    said = lambda text: print(text, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=f"forage-bench-{name}-") as scratch:
        workspace = Workspace(parameters, scratch, built=given.built)
        rounds = 1 if given.rehearse else benchmark.rounds
        keep = None if given.rehearse else workspace.home / "rows"
        busy = given.busy or given.rehearse
        # What was measured before takes nothing, and its inputs are there.
        sizes = {"sizes": left(name, benchmark, workspace, rounds, keep, busy)} if benchmark.part else {}
        afford(name, benchmark, parameters | sizes, workspace.home, said)
        found = measure(name, benchmark, workspace, rounds, said, keep, busy)
    for figure, value in found["figures"].items():
        print(f"{figure:60} {value['median']:>14.6g} {value['unit']:16} {value['min']:.6g} to {value['max']:.6g}")
    for aim in found["aims"]:
        print(f"{'held' if aim['held'] else 'MISSED':6} {aim['about']}: {aim['value']:.4g} {aim['comparison']} {aim['bound']:g}")
    if given.rehearse:
        print(f"{name}: a rehearsal, written nowhere")
        return
    path = docs.results(root) / f"{name}.json"
    if given.set:
        path = workspace.home / "results" / f"{'-'.join((name, *sorted(given.set)))}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1) + "\n")
    partial.rename(path)
    print(f"{path}: held {json.dumps(found['held'])}, others took {found['machine']['others_at_most']:g} cores as rounds began")


def main(given=None, root=ROOT):
    """The status of the process."""
    given = arguments(given)
    failed = []
    try:
        if given.list:
            for name in names(root):
                print(f"{name:15} {load(name, root).title}")
        elif given.docs:
            differing = docs.update(given.check, root)
            if differing and given.check:
                raise BenchError(f"{', '.join(differing)}: blocks differ from bench/results; run bench/run --docs")
        else:
            for name in names(root) if given.all else given.names:
                try:
                    one(name, given, root)
                except BenchError as error:
                    failed.append(name)
                    print(f"error: {name}: {error}", file=sys.stderr)
                except Exception:
                    # A fault that no side foresaw is no reason to leave the benchmarks after it out.
                    failed.append(name)
                    traceback.print_exc()
                    print(f"error: {name}: ended by the exception above", file=sys.stderr)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if len(failed) > 1:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
