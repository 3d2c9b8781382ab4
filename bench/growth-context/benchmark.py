"""The cost of a token as the sequence grows to 8,192, on the processor: of a prompt, drawn after it, and in an optimizer step; beside
transformers and PyTorch on the same random weights.

A prompt is timed with one drawn token (`single:1:LENGTH:1`), and drawn tokens are the difference to a turn with 32 more. A step is GRPO's on
two sequences of that length, one in a micro-batch, all weights of the small model, an adapter of rank 16 of the other; PyTorch with gradient
checkpointing. The best repetition counts, on both sides.
"""

import os

from harness.declare import ROOT, Aim, Benchmark, Cell, Curve, Equality, Figure, Growth, Table
from harness.models import HALF_BILLION, SMALL, TINY, TORCH, model, write_rollouts
from harness.peers import Venv
from harness.sides import Command

# The packages of bench/train.
PEERS = Venv("torch==2.15.0", "transformers==5.23.0", "peft==0.21.2", "trl==1.16.0", "datasets==5.2.0")
SHAPES = {"tiny": TINY, "small": SMALL, "0.5b": HALF_BILLION}
RANKS = {"tiny": 0, "small": 0, "0.5b": 16}
SIZES = {
    **{f"small-{length}": ("small", length) for length in (128, 512, 2048, 8192)},
    **{f"0.5b-{length}": ("0.5b", length) for length in (512, 2048, 8192)},
}
REHEARSED = {"tiny-64": ("tiny", 64)}
SIDES = {"forage": "forage", "torch": "PyTorch"}
WAYS = {"prompt": "of a prompt", "drawn": "drawn", "trained": "in a step"}
MORE = 32


def of(size):
    return (SIZES | REHEARSED)[size]


def step(lines):
    quickest = min(lines, key=lambda line: line["seconds"])
    return {"seconds": quickest["seconds"], "tokens": quickest["tokens"]}


def sides(work, size):
    shape, length = of(size)
    folder, python, threads = model(work, SHAPES[shape], "f32"), TORCH.python(work.home), os.cpu_count()
    rollouts = work.scratch / "rollouts.jsonl"
    write_rollouts(rollouts, SHAPES[shape]["vocab_size"], [length] * 2)
    jobs = {"one": f"single:1:{length}:1", "more": f"single:1:{length}:{1 + MORE}"}
    groups = []
    for name, job in jobs.items():
        ours = [work.forage, "bench", "generate", folder, "--weights", "f32", job]
        theirs = [python, ROOT / "bench/generate/peer.py", folder, "f32", job]
        read = lambda lines: {"tokens_per_second": lines[-1].get("tokens_per_second", lines[-1].get("kept"))}
        groups.append([Command(f"{size}/forage/{name}", ours, read), Command(f"{size}/torch/{name}", theirs, read)])
    rank, budget = RANKS[shape], length
    fixed = ["--rank", rank, "--threads", threads, "--micro-batch-tokens", budget, "--steps", 3]
    ours = [work.forage, "bench", "train", folder, rollouts, *fixed]
    theirs = [PEERS.python(work.home), ROOT / "bench/train/step.py", folder, rollouts, rank, "checkpoint", threads, budget, 3]
    groups.append([Command(f"{size}/forage/step", ours, step), Command(f"{size}/torch/step", theirs, step)])
    return groups


def costs(size, side):
    """Microseconds of a token by what happens to it."""
    _, length = of(size)
    one = lambda found: 1 / found[f"{size}/{side}/one/tokens_per_second"]
    more = lambda found: (1 + MORE) / found[f"{size}/{side}/more/tokens_per_second"]
    yield Figure(f"{size}/{side}/prompt", "µs per token", "lower", lambda found: one(found) / length * 1e6)
    # What is no longer than the noise of a prompt counts as a nanosecond.
    yield Figure(f"{size}/{side}/drawn", "µs per token", "lower", lambda found: max((more(found) - one(found)) / MORE * 1e6, 1e-3))
    tokens = f"{size}/{side}/step/tokens"
    yield Figure(f"{size}/{side}/trained", "µs per token", "lower", lambda found: found[f"{size}/{side}/step/seconds"] / found[tokens] * 1e6)


def figures(size):
    for side in SIDES:
        for name in ("one", "more"):
            yield Figure(f"{size}/{side}/{name}/tokens_per_second", "tokens/s", "higher")
            yield Figure(f"{size}/{side}/{name}/peak_mib", "MiB", "lower")
        yield Figure(f"{size}/{side}/step/seconds", "s", "lower")
        yield Figure(f"{size}/{side}/step/tokens", "tokens")
        yield Figure(f"{size}/{side}/step/peak_mib", "MiB", "lower")
        yield from costs(size, side)
    for way in WAYS:
        cost = {side: next(figure.of for figure in costs(size, side) if figure.name.endswith(f"/{way}")) for side in SIDES}
        yield Figure(f"{size}/{way}_over", "ratio", "lower", lambda found, cost=cost: cost["forage"](found) / cost["torch"](found))


def tables(sizes):
    cells = lambda size: [Cell(f"{size}/{side}/{way}", 1) for way in WAYS for side in SIDES]
    memory = lambda size: [Cell(f"{size}/{side}/{name}/peak_mib") for name in ("more", "step") for side in SIDES]
    head = [f"{words}, {side}" for words in WAYS.values() for side in SIDES.values()]
    head += [f"MiB, {words}, {side}" for words in ("drawing", "step") for side in SIDES.values()]
    rows = [[of(size)[0], f"{of(size)[1]:,}", *cells(size), *memory(size)] for size in sizes]
    yield Table(("model", "length", *(f"µs {words}" if not words.startswith("MiB") else words for words in head)), rows)


def curves(sizes):
    for way, words in WAYS.items():
        lines = {}
        for shape in ("small", "0.5b"):
            for side, name in SIDES.items():
                if points := [(of(size)[1], f"{size}/{side}/{way}") for size in sizes if of(size)[0] == shape]:
                    lines[f"{name}, {shape}"] = points
        if lines:
            yield Curve(way, f"Cost of a token {words}", "tokens of the sequence", "µs", lines)


def benchmark(sizes):
    return Benchmark(
        title="A token's cost as the sequence grows, beside PyTorch",
        sides=lambda work: sides(work, *sizes),
        parameters={"shapes": SHAPES},
        rehearsal={},
        peers=(PEERS,),
        figures=[figure for size in sizes for figure in figures(size)],
        aims=[
            Aim(f"{size}/{way}_over", "<=", 1, f"{size}: cost of a token {words} over PyTorch's")
            for size in sizes
            for way, words in WAYS.items()
        ],
        equalities=[
            Equality(f"{size}: a step has as many tokens", [f"{size}/{side}/step/tokens" for side in SIDES]) for size in sizes
        ],
        tables=list(tables(sizes)),
        curves=list(curves(sizes)),
    )


GROWTH = Growth(
    sizes=tuple(SIZES), usual=("small-128", "small-512", "small-2048", "small-8192", "0.5b-512"), rehearsed=tuple(REHEARSED), of=benchmark
)
