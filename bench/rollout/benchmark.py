"""Scripted episodes of the search environment, BM25 included, on two threads: the oracle in a generated world."""

from harness.declare import Aim, Benchmark, Cell, Equality, Figure, Table
from harness.sides import Command


def sides(work):
    program = work.example("forage-env", "scripted_rollouts")
    sizes = [work.parameters[name] for name in ("pages", "episodes", "threads")]
    return [[Command("forage", [program, *sizes])]]


BENCHMARK = Benchmark(
    title="Scripted rollouts in process",
    sides=sides,
    parameters={"pages": 2000, "episodes": 40_000, "threads": 2},
    rehearsal={"episodes": 2000},
    figures=[
        Figure("forage/episodes_per_s", "episodes/s", "higher"),
        Figure("forage/searches_per_s", "searches/s", "higher"),
        Figure("forage/tokens_per_episode", "tokens"),
        Figure("forage/peak_mib", "MiB", "lower"),
    ],
    aims=[Aim("forage/episodes_per_s", ">=", 20_000, "episodes per second")],
    equalities=[
        Equality("the oracle is always right", ["forage/exact_match"], value=1.0),
        Equality("no infrastructure fault", ["forage/infra_faults"], value=0),
    ],
    tables=[
        Table(
            ("episodes/s", "searches/s", "tokens per episode", "peak MiB"),
            [[Cell(f"forage/{name}") for name in ("episodes_per_s", "searches_per_s", "tokens_per_episode", "peak_mib")]],
        )
    ],
)
