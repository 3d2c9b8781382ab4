"""Spurious rewards at small scale, as bench/spurious/run.sh makes them. This benchmark is of the random reward, which the paper's claims
are about, where a habit is frequent and where it is rare; bench/spurious-all declares every family and reward."""

import os
import sys

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.sides import Command
from harness.workspace import digest
from spurious import run

KINDS = ("greedy", "sampled")
ENDS = ("estimate", "low", "high")
# Shares of a policy's sampled episodes, and of a start those that are right of each conduct, by their names in run.py.
CONDUCT = ("steps", "code")
RIGHT = ("em in steps", "em at once")
# Settings of a rehearsal, whose policies learn next to nothing.
SMALL = ["data.train_questions=64", "data.test_questions=20", "evaluation.resamples=100", "grpo.prompts_per_step=4", "grpo.group_size=4",
         "warm_start.dev_questions=10", "warm_start.learning.demonstrations_per_step=1"]


def ends(values):
    """Mean and interval over seeds in numbers. An interval that is not there, of one seed say, is all that a difference may be."""
    found = zip(ENDS, run.over_seeds(values), (0, -1, 1))
    return {end: missing if value is None else value for end, value, missing in found}


def numbers(found, families, rewards):
    """The figures of a line of JSON. A claim without a figure is as far from met as can be; of a conduct without episodes none is right."""
    figures = {}
    for name, (way, _) in run.claims(families).items():
        value = found["bars"][name]["value"]
        figures[f"claims/{name}"] = {">=": -1, "<=": 1}[way] if value is None else value
    cells = {key: found["cells"][run.named(key)] for key in run.keys(families, rewards)}
    for key, runs in cells.items():
        mean = lambda kind, part: ends([measured[kind][part] for measured in runs])["estimate"]
        at, (_, reward, _) = run.named(key), key
        figures |= {f"{at}/{kind}": mean(kind, "em") for kind in KINDS}
        figures |= {f"{at}/{part}": mean("sampled", part) for part in (CONDUCT if reward else CONDUCT + RIGHT)}
        for kind in KINDS if reward else ():
            figures |= {f"{at}/{kind}/gain/{end}": value for end, value in ends(run.gains(cells, *key, kind)).items()}
    return figures


def spurious(title, families, rewards):
    """The benchmark of these families and rewards."""
    families, rewards = list(families), list(rewards)
    keys = run.keys(families, rewards)

    def sides(work):
        given = work.parameters
        # Kept, so that hours of training go on where they were stopped, and that no benchmark makes another's runs again. Another program
        # or number of steps has a folder of its own.
        folder = work.scratch if given["task"] else work.home / "spurious" / f"{digest(work.forage)[:12]}-{given['steps']}"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "spurious.run", "--forage", work.forage, "--config", ROOT / "bench/spurious/config.toml"]
        settings = " ".join(f"--set {setting}" for setting in given["task"])
        command += ["--scratch", folder, "--steps", given["steps"], "--seeds", given["seeds"], f"--task={settings}"]
        command += ["--families", *families, "--rewards", *rewards]
        read = lambda lines: numbers(lines[-1]["figures"], families, rewards)
        return [[Command("spurious", command, read, os.environ | {"PYTHONPATH": str(ROOT / "bench")})]]

    def figures():
        for name, (way, _) in run.claims(families).items():
            unit = "seeds" if name == "seeds" else "EM"
            yield Figure(f"spurious/claims/{name}", unit, {">=": "higher", "<=": "lower"}[way])
        for key in keys:
            at, (_, reward, _) = f"spurious/{run.named(key)}", key
            for kind in KINDS:
                yield Figure(f"{at}/{kind}", "EM")
            for part in CONDUCT:
                yield Figure(f"{at}/{part}", "share")
            for part in () if reward else RIGHT:
                yield Figure(f"{at}/{part}", "EM")
            for kind in KINDS if reward else ():
                for end in ENDS:
                    yield Figure(f"{at}/{kind}/gain/{end}", "EM")

    def start(key):
        return [run.named(key), *(Cell(f"spurious/{run.named(key)}/{part}", 3) for part in (*KINDS, *CONDUCT, *RIGHT))]

    def trained(key):
        at = f"spurious/{run.named(key)}"
        cells = [[Cell(f"{at}/{kind}", 3), *(Cell(f"{at}/{kind}/gain/{end}", 3) for end in ENDS)] for kind in KINDS]
        return [*key, *sum(cells, []), *(Cell(f"{at}/{part}", 3) for part in CONDUCT)]

    return Benchmark(
        title=title,
        sides=sides,
        parameters={"seeds": run.SEEDS, "steps": 60, "task": []},
        rehearsal={"seeds": 2, "steps": 2, "task": SMALL},
        rounds=1,
        exact=True,
        figures=list(figures()),
        aims=[Aim(f"spurious/claims/{name}", way, bound, name) for name, (way, bound) in run.claims(families).items()],
        tables=[
            Table(
                ("family, start", "greedy", "sampled", "in steps", "in code", "right in steps", "right at once"),
                [start(key) for key in keys if key[1] is None],
            ),
            Table(
                ("family", "reward", "clipping", "greedy", "gain", "95 %, low", "high", "sampled", "gain", "95 %, low", "high", "in steps",
                 "in code"),
                [trained(key) for key in keys if key[1] is not None],
            ),
        ],
    )


BENCHMARK = spurious("Spurious rewards at small scale: the random one in two families", [run.FREQUENT, run.RARE], ["random"])
