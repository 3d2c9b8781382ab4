"""Tokens per second of the generation engine beside transformers, on the same random weights and prompts, on the processor.

`single:B:P:N` is one greedy turn of B prompts of P tokens with N new ones; `groups:Q:G:P:N:O:T` Q prompts with G episodes each of T
sampled turns, with an observation of O tokens in between. `again`: transformers' `generate`, which runs the whole history in every
turn; `kept`: a loop around transformers that hands its cache from turn to turn. Prompts are part of the time. The best of three
repetitions after a first one counts, on both sides.
"""

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.models import HALF_BILLION, JOBS, SMALL, TINY, TORCH, label, model
from harness.sides import Command

GROUPS = "small f32 groups:8:8:100:40:150:3"


def sides(work):
    python = TORCH.python(work.home)
    groups = []
    for shape, weights, job in JOBS:
        folder = model(work, work.parameters[shape], weights)
        name = label(shape, weights, job)
        ours = [work.forage, "bench", "generate", folder, "--weights", weights, job]
        theirs = [python, ROOT / "bench/generate/peer.py", folder, weights, job]
        groups.append([Command(f"{name}/forage", ours), Command(f"{name}/transformers", theirs)])
    return groups


def figures():
    for job in JOBS:
        name = label(*job)
        yield Figure(f"{name}/forage/tokens_per_second", "tokens/s", "higher")
        yield Figure(f"{name}/forage/cached_prompt", "share of prompts")
        yield Figure(f"{name}/forage/peak_mib", "MiB", "lower")
        yield Figure(f"{name}/transformers/peak_mib", "MiB", "lower")
        for way in ("again", "kept"):
            yield Figure(f"{name}/transformers/{way}", "tokens/s", "higher")
            yield Figure(f"{name}/ratio_{way}", "ratio", "higher", ratio(name, way))
    for weights in ("f32", "bf16"):
        ratios = [f"{label(*job)}/ratio_kept" for job in JOBS if job[1] == weights]
        yield Figure(f"worst_{weights}", "ratio", "higher", lambda found, ratios=ratios: min(found[name] for name in ratios))


def ratio(name, way):
    return lambda found: found[f"{name}/forage/tokens_per_second"] / found[f"{name}/transformers/{way}"]


def row(shape, weights, job):
    cell = lambda name, decimals: Cell(f"{label(shape, weights, job)}/{name}", decimals)
    rates = [cell("forage/tokens_per_second", 1), cell("transformers/again", 1), cell("transformers/kept", 1)]
    memory = [cell("forage/peak_mib", 0), cell("transformers/peak_mib", 0)]
    return [f"{shape} {weights}", f"`{job}`", *rates, cell("ratio_again", 2), cell("ratio_kept", 2), *memory]


BENCHMARK = Benchmark(
    title="Generation beside transformers",
    sides=sides,
    parameters={"small": SMALL, "0.5b": HALF_BILLION},
    rehearsal={"small": TINY, "0.5b": TINY},
    peers=(TORCH,),
    figures=list(figures()),
    aims=[
        Aim(f"{GROUPS}/ratio_kept", ">=", 2.0, "groups of eight, three turns, small model: speed over transformers' with its cache kept"),
        Aim("worst_f32", ">=", 1.0, "the worst job in f32: speed over transformers'"),
        Aim("worst_bf16", ">=", 1.0, "the worst job in bf16: speed over transformers'"),
    ],
    tables=[
        Table(
            (
                "model",
                "job",
                "forage, tokens/s",
                "again",
                "kept",
                "ratio to again",
                "to kept",
                "MiB, forage",
                "MiB, transformers",
            ),
            [row(*job) for job in JOBS],
        )
    ],
)
