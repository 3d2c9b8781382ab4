"""Methods side by side, as bench/methods/run.sh trains them. This one is of every line of methods.txt on the quickstart's task;
bench/methods-hops and bench/methods-ratios declare some of the lines on other tasks."""

import os
import statistics
import sys

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.sides import Command
from harness.workspace import digest
from methods import run

CONFIG = "configs/quickstart.toml"
ENDS = ("estimate", "low", "high")
# Means over seeds: unit and direction, and the decimals in the table.
MEANS = {
    "episodes": ("episodes", "", 0),
    "steps": ("steps", "", 0),
    "searches": ("searches of an episode", "", 2),
    "greedy": ("EM", "higher", 3),
    "trained": ("EM", "higher", 3),
}
# Of the seeds that came to the level of exact match.
REACHED = {"questions": ("questions", "lower"), "seeds": ("seeds", "higher")}
# What is above 0 by more than rounding.
SHOWN = 0.001
# Settings of a rehearsal. Batches are as large as ever, since methods set sizes of their own.
SMALL = ["data.train_questions=200", "data.dev_questions=10", "data.test_questions=30", "data.world.pages=300",
         "evaluation.resamples=1000"]


def gains(first):
    """The ends of the gain and, except of the first method, of the lead over it."""
    return [f"{part}/{end}" for part in (("gain",) if first else ("gain", "lead")) for end in ENDS]


def numbers(found):
    """The figures of a method. Questions are the mean of the seeds that came to the level, 0 where none did."""
    came = [count for count in found["asked"] if count is not None]
    figures = {part: statistics.fmean(found[part]) for part in MEANS}
    figures |= {"questions": statistics.fmean(came) if came else 0, "seeds": len(came)}
    for part in ("gain", "lead"):
        figures |= {f"{part}/{end}": value for end, value in zip(ENDS, found[part] or ())}
    return figures


def comparison(name, title, task=(), chosen=()):
    """The benchmark `name` of the chosen methods, all without them; `task` are settings that every run and evaluation has."""
    found = run.methods(chosen)
    first = next(iter(found))
    parts = {method: [*MEANS, *REACHED, *gains(method == first)] for method in found}
    few = {method: found[method] for method in (first, list(found)[-1])}

    def sides(work):
        given = work.parameters
        whole = given["methods"] == found

        def read(lines):
            """All figures in numbers; methods that a rehearsal leaves out have zeros."""
            line, seen = lines[-1], {}
            for method, figures in line["figures"].items():
                seen |= {f"{method}/{part}": value for part, value in numbers(figures).items()}
            left = {} if whole else {f"{method}/{part}": 0 for method, names in parts.items() for part in names}
            return left | seen | {"start": statistics.fmean(line["figures"][first]["start"]), "fair": int(line["held"])}

        # Kept, so that hours of training go on where they were stopped. Another program or number of steps has a folder of its own.
        folder = work.home / "methods" / f"{digest(work.forage)[:12]}-{name}-{given['steps']}" if whole else work.scratch
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "methods.run", "--forage", work.forage, "--config", CONFIG, "--scratch", folder]
        settings = " ".join(f"--set {setting}" for setting in given["task"])
        command += ["--steps", given["steps"], "--seeds", given["seeds"], f"--task={settings}", "--methods", *given["methods"]]
        return [[Command("methods", command, read, os.environ | {"PYTHONPATH": str(ROOT / "bench")})]]

    def figures():
        yield Figure("methods/start", "EM")
        for method in found:
            for part, (unit, better, _) in MEANS.items():
                yield Figure(f"methods/{method}/{part}", unit, better)
            for part, (unit, better) in REACHED.items():
                yield Figure(f"methods/{method}/{part}", unit, better)
            for part in gains(method == first):
                yield Figure(f"methods/{method}/{part}", "EM", "higher")

    def row(method):
        at = f"methods/{method}"
        lead = [""] * len(ENDS) if method == first else []
        means = [Cell(f"{at}/{part}", decimals) for part, (*_, decimals) in MEANS.items()]
        differences = [Cell(f"{at}/{part}", 3) for part in gains(method == first)]
        return [method, *means, *differences, *lead, *(Cell(f"{at}/{part}") for part in REACHED)]

    head = ("method", "episodes", "steps", "searches", "greedy EM", "sampled EM", "gain", "95 %, low", "high", f"against {first}", "low",
            "high", f"questions to {run.LEVEL:g}", "seeds that got there")
    start = ["start", *[""] * 4, Cell("methods/start", 3), *[""] * 8]
    return Benchmark(
        title=title,
        sides=sides,
        parameters={"seeds": 3, "steps": 80, "task": list(task), "methods": found},
        rehearsal={"seeds": 2, "steps": 2, "task": [*task, *SMALL], "methods": few},
        rounds=1,
        exact=True,
        figures=list(figures()),
        aims=[Aim(f"methods/{first}/gain/low", ">=", SHOWN, f"gain of {first}, sampled, low end of its 95 % interval over seeds")],
        equalities=[Equality("all methods play as many episodes, but for a tenth", ["methods/fair"], value=1)],
        tables=[Table(head, [start, *map(row, found)])],
    )


BENCHMARK = comparison("methods", "Every method on the quickstart's task, side by side")
