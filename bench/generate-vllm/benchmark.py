"""Tokens per second of the generation engine beside vLLM's build for processors, on the same random weights and prompts.

The jobs are those of bench/generate. vLLM is set as it comes: it compiles what it computes and keeps prefixes, so that a turn's history is
not computed again. Starting and compiling are not part of the time; the best of three repetitions after a first one counts, on both sides.
"""

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.models import HALF_BILLION, JOBS, SMALL, TINY, TORCH, label, model
from harness.peers import Vllm
from harness.sides import Command

VLLM = Vllm()
SIDES = ("forage", "vllm")


def sides(work):
    python = VLLM.python(work.home)
    groups = []
    for shape, weights, job in JOBS:
        folder, name = model(work, work.parameters[shape], weights), label(shape, weights, job)
        ours = [work.forage, "bench", "generate", folder, "--weights", weights, job]
        theirs = [python, ROOT / "bench/generate-vllm/peer.py", folder, weights, job]
        groups.append([Command(f"{name}/forage", ours), Command(f"{name}/vllm", theirs)])
    return groups


def figures():
    for job in JOBS:
        name = label(*job)
        for side in SIDES:
            yield Figure(f"{name}/{side}/tokens_per_second", "tokens/s", "higher")
            yield Figure(f"{name}/{side}/peak_mib", "MiB", "lower")
        yield Figure(f"{name}/ratio", "ratio", "higher", ratio(name))
    for weights in ("f32", "bf16"):
        ratios = [f"{label(*job)}/ratio" for job in JOBS if job[1] == weights]
        yield Figure(f"worst_{weights}", "ratio", "higher", lambda found, ratios=ratios: min(found[name] for name in ratios))


def ratio(name):
    return lambda found: found[f"{name}/forage/tokens_per_second"] / found[f"{name}/vllm/tokens_per_second"]


def row(shape, weights, job):
    cell = lambda name, decimals: Cell(f"{label(shape, weights, job)}/{name}", decimals)
    rates = [cell(f"{side}/tokens_per_second", 1) for side in SIDES]
    return [f"{shape} {weights}", f"`{job}`", *rates, cell("ratio", 2), *(cell(f"{side}/peak_mib", 0) for side in SIDES)]


BENCHMARK = Benchmark(
    title="Generation beside vLLM's build for processors",
    sides=sides,
    parameters={"small": SMALL, "0.5b": HALF_BILLION},
    # Heads of 32 numbers, as the small model has.
    rehearsal={"small": TINY | {"hidden_size": 128}, "0.5b": TINY | {"hidden_size": 128}},
    peers=(TORCH, VLLM),
    figures=list(figures()),
    aims=[
        Aim("worst_f32", ">=", 1.0, "the worst job in f32: speed over vLLM's"),
        Aim("worst_bf16", ">=", 1.0, "the worst job in bf16: speed over vLLM's"),
    ],
    tables=[
        Table(("model", "job", "forage, tokens/s", "vLLM, tokens/s", "ratio", "MiB, forage", "MiB, vLLM"), [row(*job) for job in JOBS]),
    ],
)
