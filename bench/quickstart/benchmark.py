"""The quickstarts over three seeds, each with a world of its own, as bench/quickstart/run.sh makes them: gains, the control, time and memory."""

import os

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.sides import Command
from quickstart import table

# By name: arguments of `forage quickstart`, and the measure.
JOBS = {
    "search-r1": ([], "EM"),
    "code-search": (["--env", "code-search"], "EM"),
    "query-writer": (["--env", "query-writer", "--set", 'evaluation.baselines=["keywords"]'], "NDCG@10"),
}
KINDS = ("greedy", "sampled")
PARTS = ("gain", "control_gain", "over_control")
KEYWORDS = "script-keywords"
# What is above 0 by more than rounding.
SHOWN = 0.001
PARAMETERS = {"settings": []}
REHEARSAL = {
    "settings": ["data.world.pages=300", "data.train_questions=64", "data.dev_questions=8", "data.test_questions=30", "grpo.steps=2",
                 "evaluation.resamples=200"],
}


def read(lines):
    """The figures of all seeds in numbers alone."""
    found = {}
    for seed, row in lines[-1]["figures"].items():
        for name, value in row.items():
            numbers = {"start": value["a"], "end": value["b"], **value["difference"]} if isinstance(value, dict) else {"": value}
            found |= {f"{seed}/{name}/{part}".removesuffix("/"): number for part, number in numbers.items()}
    return found


def sides(work):
    environment = os.environ | {"FORAGE_BIN": str(work.forage)}
    settings = [word for setting in work.parameters["settings"] for word in ("--set", setting)]
    script = ROOT / "bench/quickstart/run.sh"
    return [[Command(name, [script, work.scratch / name, *words, *settings], read, environment) for name, (words, _) in JOBS.items()]]


def of_seeds(job, name):
    return [f"{job}/{seed}/{name}" for seed in table.SEEDS]


def least(job, name):
    return lambda found: min(found[figure] for figure in of_seeds(job, name))


def most(job, name):
    return lambda found: max(found[figure] for figure in of_seeds(job, name))


def figures():
    for job, (_, unit) in JOBS.items():
        for seed in table.SEEDS:
            at = f"{job}/{seed}"
            yield Figure(f"{at}/minutes", "min", "lower")
            yield Figure(f"{at}/gib", "GiB", "lower")
            for kind in KINDS:
                yield Figure(f"{at}/{kind}/gain/start", unit)
                yield Figure(f"{at}/{kind}/gain/end", unit, "higher")
                for part in PARTS:
                    for end in ("estimate", "low", "high"):
                        yield Figure(f"{at}/{kind}/{part}/{end}", unit, "" if part == "control_gain" else "higher")
                if job == "query-writer":
                    yield Figure(f"{at}/{kind}/{KEYWORDS}", unit, "higher")
        yield Figure(f"{job}/least gain", unit, "higher", least(job, "greedy/gain/estimate"))
        yield Figure(f"{job}/least low end of the gain", unit, "higher", least(job, "greedy/gain/low"))
        for kind in KINDS:
            yield Figure(f"{job}/{kind}, least low end of the lead", unit, "higher", least(job, f"{kind}/over_control/low"))
        yield Figure(f"{job}/most memory", "GiB", "lower", most(job, "gib"))
        yield Figure(f"{job}/most time", "min", "lower", most(job, "minutes"))


def aims():
    for job in JOBS:
        yield Aim(f"{job}/least gain", ">=", table.GAIN, f"{job}: the gain, greedy, of every seed")
        yield Aim(f"{job}/least low end of the gain", ">=", SHOWN, f"{job}: the low end of it")
        for kind in KINDS:
            yield Aim(f"{job}/{kind}, least low end of the lead", ">=", SHOWN, f"{job}: the low end of the lead over the control, {kind}")
        yield Aim(f"{job}/most memory", "<=", table.GIB, f"{job}: memory in GiB")
        yield Aim(f"{job}/most time", "<=", table.MINUTES, f"{job}: minutes")


def row(job, seed, kind):
    at = f"{job}/{seed}/{kind}"
    ends = lambda part: [Cell(f"{at}/{part}/{end}", 3) for end in ("estimate", "low", "high")]
    keywords = Cell(f"{at}/{KEYWORDS}", 3) if job == "query-writer" else ""
    cells = [Cell(f"{at}/gain/start", 3), Cell(f"{at}/gain/end", 3), *ends("gain"), *ends("control_gain")[:1], *ends("over_control"), keywords]
    return [f"{job}, {seed}, {kind}", *cells, Cell(f"{job}/{seed}/minutes", 1)]


BENCHMARK = Benchmark(
    title="The quickstarts, each over three seeds",
    sides=sides,
    parameters=PARAMETERS,
    rehearsal=REHEARSAL,
    rounds=1,
    exact=True,
    figures=list(figures()),
    aims=list(aims()),
    tables=[
        Table(
            ("environment, seed, episodes", "start", "trained", "gain", "95 %, low", "high", "control's gain", "ahead of it by", "low", "high",
             "keywords", "minutes"),
            [row(job, seed, kind) for job in JOBS for seed in table.SEEDS for kind in KINDS],
        )
    ],
)
