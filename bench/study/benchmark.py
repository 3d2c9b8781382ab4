"""The study of bench/study/run.sh: one config under ten seeds, beside twins and baselines, with every bar of a convincing study."""

import json
import os

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.sides import Command
from harness.workspace import digest
from study import bars

TWINS, BASELINES = bars.TWINS["answer"], bars.BASELINES["answer"]
POLICIES = ["trained", *TWINS, *BASELINES]
KINDS = ("greedy", "sampled")
ENDS = ("estimate", "low", "high")
BARS = [
    "seeds", "minutes of a run", *(f"low end of the lead over {name}" for name in TWINS), *(f"baseline {name}" for name in BASELINES),
    "late share of the rise", "start, greedy", "trained, greedy", "sampled gain", "trained, two hops", "low end of trained, three hops",
    "low end of searches against hops", "largest k of pass@k",
]
COSTS = ("episodes", "seconds")
HOPS, PARTS = (1, 2, 3), ("search", "found", "read", "right")
KS = (1, 2, 4, 8, 16, 32, 64)
PASSED = ("start", "trained", *(f"difference/{end}" for end in ENDS))
CONDUCT = [f"hops/{name}/{count}/{part}" for name in ("start", "trained") for count in HOPS for part in PARTS]
CURVES = [f"pass/{k}/{part}" for k in KS for part in PASSED]
PARAMETERS = {"config": "configs/quickstart.toml", "seeds": "1 2 3 4 5 6 7 8 9 10", "samples": 64}
REHEARSAL = {"config": "configs/smoke.toml", "seeds": "1 2", "samples": 8}


def sides(work):
    parameters = work.parameters
    baselines = json.dumps(BASELINES, separators=(",", ":"))
    asked = f"--set evaluation.samples={parameters['samples']} --set evaluation.baselines={baselines}"
    # Kept, so that hours of training go on where they were stopped; another program has a folder of its own.
    folder = work.home / "study" / f"{digest(work.forage)[:12]}-{os.path.basename(parameters['config'])}"
    command = [ROOT / "bench/study/run.sh", folder, parameters["config"], parameters["seeds"], ",".join(TWINS)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    return [[Command("study", command, read, os.environ | {"FORAGE_BIN": str(work.forage), "STUDY": asked})]]


def read(lines):
    """All figures in numbers; what was not trained has cost nothing. A rehearsal has fewer hops and samples, and zeros in their place."""
    found = {f"bar {name}": int(bar["met"]) for name, bar in lines[-1]["figures"].items()}
    lacking = [f"{kind}/{name}/{part}" for kind in KINDS for name in POLICIES for part in COSTS] + CONDUCT + CURVES
    return dict.fromkeys(lacking, 0) | lines[-1]["policies"] | lines[-1]["curves"] | found


def figures():
    for kind in KINDS:
        for name in POLICIES:
            at = f"study/{kind}/{name}"
            yield Figure(f"{at}/start", "EM")
            yield Figure(f"{at}/end", "EM", "higher")
            for part in ("gain",) if name == "trained" else ("gain", "lead"):
                for end in ENDS:
                    yield Figure(f"{at}/{part}/{end}", "EM", "higher")
            if name != "trained":
                yield Figure(f"{at}/p", "p", "lower")
            yield Figure(f"{at}/episodes", "episodes")
            yield Figure(f"{at}/seconds", "s")
    for name in CONDUCT + CURVES:
        yield Figure(f"study/{name}", "share", "higher")
    for name in BARS:
        yield Figure(f"study/bar {name}", "1 if met", "higher")
    yield Figure("bars met", "share", "higher", lambda found: sum(found[f"study/bar {name}"] for name in BARS) / len(BARS))


def row(kind, name):
    at = f"study/{kind}/{name}"
    ends = lambda part: [Cell(f"{at}/{part}/{end}", 3) for end in ENDS]
    lead = [""] * 4 if name == "trained" else [*ends("lead"), Cell(f"{at}/p", 3)]
    return [f"{name}, {kind}", Cell(f"{at}/start", 3), Cell(f"{at}/end", 3), *ends("gain"), *lead, *(Cell(f"{at}/{part}") for part in COSTS)]


def conduct(name, count):
    return [name, str(count), *(Cell(f"study/hops/{name}/{count}/{part}", 3) for part in PARTS)]


BENCHMARK = Benchmark(
    title="A gain beside twins and baselines, over ten seeds",
    sides=sides,
    parameters=PARAMETERS,
    rehearsal=REHEARSAL,
    rounds=1,
    exact=True,
    figures=list(figures()),
    aims=[Aim("bars met", ">=", 1, "the share of the bars of a convincing study that are met")],
    tables=[
        Table(
            ("policy, episodes", "start", "end", "gain", "95 %, low", "high", "trained ahead by", "low", "high", "p (Holm)",
             "episodes of training", "seconds of it"),
            [row(kind, name) for kind in KINDS for name in POLICIES],
        ),
        Table(
            ("policy, greedy", "hops", "searches", "finds, of those", "right, of those", "right"),
            [conduct(name, count) for name in ("start", "trained") for count in HOPS],
        ),
        Table(
            ("k of pass@k", "start", "trained", "difference", "low", "high"),
            [[str(k), *(Cell(f"study/pass/{k}/{part}", 3) for part in PASSED)] for k in KS],
        ),
        Table(("bar", "met"), [[name, Cell(f"study/bar {name}")] for name in BARS]),
    ],
)
