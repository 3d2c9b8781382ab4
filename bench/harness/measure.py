"""Rounds of a benchmark, its result, and what the result says of the aims."""

import datetime
import json
import math
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from harness.declare import ROOT, BenchError
from harness.workspace import digest


def machine():
    """Processor, cores and memory."""
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": round(memory, 1)}


# Cores that others may take as a round begins, the seconds over which they are counted, and how long a quiet machine is waited for.
BUSY, WINDOW_S, PATIENCE_S = 0.2, 1.0, 120


def others():
    """Cores at work while nothing is measured: other programs', and what other machines take of this one's."""

    def ticks():
        with open("/proc/stat") as lines:
            found = list(map(int, next(lines).split()[1:9]))
        return sum(found), found[3] + found[4]

    all_before, idle_before = ticks()
    time.sleep(WINDOW_S)
    all_after, idle_after = ticks()
    return os.cpu_count() * (1 - (idle_after - idle_before) / max(1, all_after - all_before))


def begin(busy, say):
    """Cores that others take as a round begins. Raises where they stay more than `BUSY`, unless a `busy` machine will do."""
    until = time.monotonic() + PATIENCE_S
    while (taken := others()) > BUSY and not busy:
        words = f"other programs take {taken:.1f} of {os.cpu_count()} cores, more than {BUSY}"
        if time.monotonic() > until:
            raise BenchError(f"{words}: end them, or measure with --busy, where nothing counts as held")
        say(f"waits: {words}")
    return taken


def commit():
    """The commit that is checked out, and whether the tree differs from it."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results", ":!docs")
    return {"commit": git("rev-parse", "--short=12", "HEAD") or None, "changed": bool(changed)}


def afford(name, benchmark, parameters, home, say):
    """Says what a workload takes, before anything of it is made; raises where the machine has less. One without a size takes nothing."""
    if benchmark.needs is None or parameters.get("sizes") == []:
        return
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    meminfo = Path("/proc/meminfo").read_text()
    free = {"memory": int(meminfo.split("MemAvailable:")[1].split()[0]) * 1024, "disk": shutil.disk_usage(there).free}
    gib = lambda bytes: f"{bytes / 2**30:.1f} GiB"
    for kind, takes in benchmark.needs(parameters).items():
        words = f"takes up to {gib(takes)} of {kind}, of which {gib(free[kind])} are free"
        say(f"{name}: {words}")
        if takes > free[kind]:
            raise BenchError(f"it {words}; choose a smaller workload, or another machine")


def observe(groups, turn):
    """One round: every side once, each group beginning with another of its sides than in the round before."""
    seen = {}
    for group in groups:
        first = turn % len(group)
        for side in [*group[first:], *group[:first]]:
            for name, value in side.measure().items():
                name = f"{side.name}/{name}"
                if name in seen:
                    raise BenchError(f"two sides observe `{name}`")
                seen[name] = value
    return seen


def figures(benchmark, seen):
    """The declared figures of a round: those observed, then those computed from them."""
    found = {}
    for figure in benchmark.figures:
        if figure.of is None:
            if figure.name not in seen:
                raise BenchError(f"no side gave the declared figure `{figure.name}`; there are {', '.join(sorted(seen))}")
            found[figure.name] = _number(figure, seen[figure.name])
    for figure in benchmark.figures:
        if figure.of is not None:
            try:
                found[figure.name] = _number(figure, figure.of(found))
            except ZeroDivisionError:
                raise BenchError(f"the figure `{figure.name}` divides by a figure that is 0") from None
    return found


def _number(figure, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BenchError(f"the figure `{figure.name}` is {value!r}, which is not a number")
    return value


def check(benchmark, seen):
    """Raises where a declared equality does not hold in a round."""
    for equality in benchmark.equalities:
        missing = [name for name in equality.observed if name not in seen]
        if missing:
            raise BenchError(f"“{equality.about}” cannot be checked: no side gave {', '.join(missing)}")
        if difference := equality.differing(seen):
            raise BenchError(f"“{equality.about}” does not hold: {difference}")


def judge(benchmark, medians):
    """Every aim with the value it is compared with."""
    return [
        {
            "about": aim.about,
            "figure": aim.figure,
            "comparison": aim.comparison,
            "bound": aim.bound,
            "value": medians[aim.figure],
            "held": aim.holds(medians[aim.figure]),
        }
        for aim in benchmark.aims
    ]


def measure(name, benchmark, workspace, rounds, say=lambda text: None, keep=None, busy=False):
    """Runs a benchmark; its result as it is written to bench/results. Of one that grows, `keep` is a folder where the rounds of each size
    are written when they are measured, and read where they are those of the same programs, scripts and machine. `busy` measures beside
    other programs too."""
    date = _today()
    say(f"{name}: {benchmark.title}")
    if benchmark.part:
        found, loads, taken, date = _grow(name, benchmark, workspace, rounds, say, keep, busy)
    else:
        found, loads, taken = _rounds(name, benchmark, workspace, rounds, say, busy)
    load = {"load_at_start": round(loads[0], 2), "load_at_most": round(max(loads), 2), "others_at_most": round(max(taken), 2)}
    for seen in found:
        check(benchmark, seen)
    return result(name, benchmark, workspace.parameters, [figures(benchmark, seen) for seen in found], load["others_at_most"]) | {
        # What a benchmark takes itself is in the loads. The last is what others took as rounds began.
        "machine": machine() | load,
        "date": date,
        # Programs that were built before may be of another commit than the one that is checked out.
        "prebuilt": workspace.prebuilt,
        **commit(),
    }


def _today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def _rounds(name, benchmark, workspace, rounds, say, busy):
    """What is observed in every round, the loads of the machine, and the cores that others took as each began."""
    loads, taken, found = [os.getloadavg()[0]], [], []
    groups = benchmark.sides(workspace)
    try:
        for turn in range(rounds):
            say(f"{name}: round {turn + 1} of {rounds}")
            taken.append(begin(busy or benchmark.exact, lambda text: say(f"{name}: {text}")))
            seen = observe(groups, turn)
            check(benchmark, seen)
            figures(benchmark, seen)
            found.append(seen)
            loads.append(os.getloadavg()[0])
    finally:
        # Sides that live through all rounds.
        for side in (side for group in groups for side in group):
            getattr(side, "close", lambda: None)()
    return found, loads, taken


def _grow(name, benchmark, workspace, rounds, say, keep, busy):
    """The rounds of all sizes together, each size kept when it is measured; the loads, the cores of others, and the last day."""
    found, loads, others_took, date = [{} for _ in range(rounds)], [], [], ""
    for size in benchmark.parameters["sizes"]:
        kept = _kept(name, size, benchmark, workspace, rounds, keep, busy)
        if kept is None:
            key, day = _kept_for(benchmark, workspace, rounds) if keep else None, _today()
            seen, load, taken = _rounds(f"{name}, {size}", benchmark.part(size), workspace, rounds, say, busy)
            workspace.clear()
            kept = {"key": key, "rounds": seen, "loads": load, "others": taken, "date": day}
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                path = keep / f"{name}-{size}.json"
                partial = path.with_suffix(".partial")
                partial.write_text(json.dumps(kept))
                partial.rename(path)
        else:
            say(f"{name}, {size}: measured before")
        for all_seen, seen in zip(found, kept["rounds"]):
            all_seen |= seen
        loads += kept["loads"]
        others_took += kept["others"]
        date = max(date, kept["date"])
    return found, loads, others_took, date


def left(name, benchmark, workspace, rounds, keep, busy):
    """The sizes of a benchmark that grows which are still to be measured."""
    sizes = benchmark.parameters["sizes"]
    return [size for size in sizes if _kept(name, size, benchmark, workspace, rounds, keep, busy) is None]


def _kept(name, size, benchmark, workspace, rounds, keep, busy):
    """The rounds of a size that were measured before, if they count again."""
    path = keep and keep / f"{name}-{size}.json"
    if not path or not path.exists():
        return None
    kept = json.loads(path.read_text())
    counts = kept["key"] == _kept_for(benchmark, workspace, rounds) and (busy or max(kept["others"]) <= BUSY)
    return kept if counts else None


def _kept_for(benchmark, workspace, rounds):
    """What must be the same for rounds of a size to count again."""
    # Those of other benchmarks too, and the examples: sides run both, and a tree that differs from its commit may have others.
    scripts = sorted([*(ROOT / "bench").rglob("*.py"), *ROOT.glob("*/examples/*.rs")])
    key = {"parameters": {**workspace.parameters, "sizes": None}, "peers": benchmark.versions(), "rounds": rounds, "machine": machine()}
    key |= {"scripts": digest(*scripts), "program": digest(workspace.forage), **commit()}
    return json.loads(json.dumps(key))


def result(name, benchmark, parameters, rounds, taken=0.0):
    """What rounds of figures come to, on a machine of which others took so many cores."""
    summary = {}
    for figure in benchmark.figures:
        values = [found[figure.name] for found in rounds]
        summary[figure.name] = {
            "unit": figure.unit,
            "better": figure.better or None,
            "min": min(values),
            "median": statistics.median(values),
            "max": max(values),
            "rounds": values,
        }
    aims = judge(benchmark, {figure: found["median"] for figure, found in summary.items()})
    return {
        "bench": name,
        # Without an aim there is nothing to hold; times on a busy machine show nothing.
        "held": all(aim["held"] for aim in aims) if aims and (taken <= BUSY or benchmark.exact) else None,
        "aims": aims,
        "equalities": [equality.about for equality in benchmark.equalities],
        "rounds": len(rounds),
        "peers": benchmark.versions(),
        "parameters": json.loads(json.dumps(dict(parameters))),
        "figures": summary,
    }
