"""The memory estimate of a run beside the peak that was measured, each run in a process of its own: updates on recorded rollouts, then
whole runs with the engine. `small` is the built-in policy with 0.7 million weights, `0.5b` Qwen2.5-0.5B's shape with random weights,
one episode of so many tokens as a micro-batch.
"""

import re
import shutil

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.models import write_rollouts
from harness.sides import Command, Function

# Model, vocabulary.
MODELS = {"small": (ROOT / "configs/quickstart", 1024), "0.5b": ("random:Qwen2.5-0.5B:{}", 151_936)}
LENGTHS = (512, 1024, 2048)
BASES = ("f32", "bf16", "int8")
# Model, LoRA rank or 0 for all weights, how the base is kept, tokens of an episode, episodes of a group, tokens of a micro-batch,
# threads, steps.
JOBS = {
    **{
        f"small, {f'LoRA {rank}' if rank else 'all'}, {length} tokens by {micro_batch}, {threads} threads": (
            "small", rank, "f32", length, 32, micro_batch, threads, 2
        )
        for rank in (0, 8)
        for threads in (1, 2)
        for length, micro_batch in ((256, 256), (256, 1024), (256, 4096), (512, 4096))
    },
    **{f"0.5b, LoRA 16, {base}, {length} tokens": ("0.5b", 16, base, length, 1, length, 2, 1) for base in BASES for length in LENGTHS},
    "0.5b, all, 256 tokens": ("0.5b", 0, "f32", 256, 1, 256, 2, 2),
}  # fmt: skip
# Config, and what is set.
RUNS = {
    "smoke.toml": ("smoke", []),
    "smoke.toml, LoRA 8": ("smoke", ["policy.lora={rank=8, alpha=16}"]),
    "quickstart.toml, 12 steps": ("quickstart", ["grpo.steps=12"]),
}
ALL = (*JOBS, *RUNS)


def update(work, name):
    model, rank, base, length, sequences, micro_batch, threads, steps = JOBS[name]
    path, vocabulary = MODELS[model]
    path, sequences = str(path).format(work.parameters["layers"]), min(sequences, work.parameters["sequences"])
    rollouts = work.scratch / f"{model}-{length}-{sequences}.jsonl"
    # The last has another reward, so that there is a direction.
    write_rollouts(rollouts, vocabulary, [length] * sequences + [16])
    kept = ["--rank", rank, "--base", base, "--threads", threads, "--micro-batch-tokens", micro_batch, "--steps", steps]
    read = lambda lines: {name: lines[-1][name] for name in ("estimate_mib", "peak_mib")}
    return Command(name, [work.forage, "bench", "train", path, rollouts, *kept], read)


def whole(work, name):
    config, settings = RUNS[name]

    def measure():
        shutil.rmtree(work.scratch / "run", ignore_errors=True)
        command = [work.forage, "train", ROOT / f"configs/{config}.toml", "--out", work.scratch / "run"]
        said = work.run(*command, *(word for setting in settings for word in ("--set", setting)))
        peak, estimate = map(int, re.search(r"peak memory (\d+) MiB; (\d+) MiB", said).groups())
        return {"estimate_mib": estimate, "peak_mib": peak}

    return Function(name, measure)


def sides(work):
    return [*([update(work, name)] for name in JOBS), *([whole(work, name)] for name in RUNS)]


def figures():
    for name in ALL:
        yield Figure(f"{name}/estimate_mib", "MiB")
        yield Figure(f"{name}/peak_mib", "MiB", "lower")
        yield Figure(f"{name}/ratio", "ratio", "", lambda found, name=name: found[f"{name}/estimate_mib"] / found[f"{name}/peak_mib"])
    ratios = [f"{name}/ratio" for name in ALL]
    large = [name for name in ratios if name.startswith("0.5b")]
    yield Figure("lowest", "ratio", "higher", lambda found: min(found[name] for name in ratios))
    yield Figure("highest of 0.5b", "ratio", "lower", lambda found: max(found[name] for name in large))
    for base in BASES:
        peak = lambda found, length, base=base: found[f"0.5b, LoRA 16, {base}, {length} tokens/peak_mib"]
        # MiB for 1,024 tokens are KiB for one.
        more = lambda found, peak=peak: peak(found, 2048) - peak(found, 1024)
        yield Figure(f"KiB per token, {base}", "KiB", "lower", more)


BENCHMARK = Benchmark(
    title="The memory estimate beside the measured peak",
    sides=sides,
    parameters={"layers": 24, "sequences": 32},
    rehearsal={"layers": 1, "sequences": 2},
    figures=list(figures()),
    aims=[
        Aim("lowest", ">=", 0.9, "the lowest estimate over its peak"),
        Aim("highest of 0.5b", "<=", 1.15, "the highest estimate of the 0.5b model over its peak"),
    ],
    tables=[
        Table(
            ("run", "estimate, MiB", "peak, MiB", "ratio"),
            [[name, Cell(f"{name}/estimate_mib"), Cell(f"{name}/peak_mib"), Cell(f"{name}/ratio", 2)] for name in ALL],
        ),
        Table(
            ("base", "KiB for each token more, 1,024 to 2,048"),
            [[base, Cell(f"KiB per token, {base}")] for base in BASES],
        ),
    ],
)
