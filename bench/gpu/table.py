"""The table for docs/gpu.md, and whether the figures hold."""

import math

from jobs import DEVIATION, EPISODES, FULL, GENERATE, LOSS, MISMATCH, MODELS, NORM, REHEARSAL, TRAIN

LOSS_GAP = 1e-3


def text(value, pattern):
    return "" if value is None else format(value, pattern)


def ratio(larger, smaller):
    return f"{larger / smaller:.2f}" if larger and smaller else ""


def row_of(cells):
    return f"| {' | '.join(cells)} |"


def head(columns, texts):
    """The first `texts` columns are text, the others are numbers."""
    yield row_of(columns)
    yield "|---" * texts + "|---:" * (len(columns) - texts) + "|"


def measured(rows, id, cell):
    return "failed" if rows.failed(id) else cell


def generation(rows, sizes):
    speeds = ["forage, tokens/s", "transformers, tokens/s", "forage is faster by"]
    first = ["forage's first round, s more", "the same, cold"]
    memory = ["card MiB, forage", "card MiB, transformers", "own count MiB, forage", "own count MiB, torch"]
    yield from head(["model", "job", *speeds, *first, *memory], 2)
    for model, name, full_job, *_ in GENERATE:
        job, ids = sizes.job(full_job), [f"generate-{model}-{name}-{side}" for side in ("forage", "torch")]
        # With one new token, what is told is the tokens of the prompts.
        scale = int(job.split(":")[2]) if name == "prefill" else 1
        ours, theirs = found = [rows.figures(id) for id in ids]
        speeds = [figures["tokens_per_second"] * scale if figures else None for figures in found]
        yield row_of(
            [
                MODELS[model],
                f"{name}, `{job}`",
                *[measured(rows, id, text(speed, ",.0f")) for id, speed in zip(ids, speeds)],
                ratio(*speeds),
                text(ours.get("first_round_extra_s"), ".1f"),
                text(ours.get("cold_first_round_extra_s"), ".1f"),
                *[text(figures.get("card_mib"), ",d") for figures in found],
                text(ours.get("device_peak_mib"), ",.0f"),
                text(theirs.get("torch_peak_mib"), ",.0f"),
            ]
        )


def training(rows, sizes):
    seconds = [
        "forage, s/step",
        "PyTorch, checkpointing, s/step",
        "PyTorch, plain, s/step",
        "forage is faster by",
    ]
    memory = ["card MiB, forage", "card MiB, checkpointing", "card MiB, plain"]
    yield from head(["model", "trained", "tokens of an episode", *seconds, *memory], 2)
    for model, name, rank, base, length, *_ in TRAIN:
        ids = [f"train-{model}-{name}-{side}" for side in ("forage", "torch-checkpointing", "torch-plain")]
        found = [rows.figures(id) for id in ids]
        seconds = [figures.get("seconds") for figures in found]
        cells = ["does not fit" if figures.get("out_of_memory") else "" for figures in found]
        yield row_of(
            [
                MODELS[model],
                f"LoRA {rank} beside {base}" if rank else f"all weights, {base}",
                f"{length // sizes.less:,}",
                *[
                    measured(rows, id, cell or text(value, ".3f"))
                    for id, cell, value in zip(ids, cells, seconds)
                ],
                ratio(min((value for value in seconds[1:] if value), default=None), seconds[0]),
                *[text(figures.get("card_mib"), ",d") for figures in found],
            ]
        )


def smoke_steps(rows):
    """Figures of each step of the small run: on the processor, on the GPU in f32, on the GPU by default."""
    runs = []
    for side in ("cpu", "cuda-f32", "cuda"):
        runs.append({step["step"]: step for step in rows.figures(f"smoke-{side}").get("steps", [])})
    return [(step, *[run.get(step, {}) for run in runs]) for step in sorted(set().union(*runs))]


def loss_gap(ours, theirs):
    """How far two steps' losses are apart; infinitely where only one is a number."""
    if LOSS not in ours and LOSS not in theirs:
        return 0.0
    losses = [ours.get(LOSS), theirs.get(LOSS)]
    return math.inf if None in losses else abs(losses[0] - losses[1])


def smoke(rows):
    losses = ["loss, processor", "loss, GPU in f32", "apart by", "tokens sampled"]
    norms = ["gradient norm, processor", "gradient norm, GPU in f32", "mismatch, GPU in f32"]
    default = ["loss, GPU by default", "mismatch, GPU by default", "its largest ratio deviation"]
    yield from head(["step", *losses, *norms, *default], 0)
    for step, processor, full, default in smoke_steps(rows):
        tokens = [processor.get("tokens"), full.get("tokens")]
        yield row_of(
            [
                str(step),
                text(processor.get(LOSS), ".6f"),
                text(full.get(LOSS), ".6f"),
                text(loss_gap(processor, full), ".1e"),
                "" if None in tokens else "the same" if tokens[0] == tokens[1] else "others",
                text(processor.get(NORM), ".5f"),
                text(full.get(NORM), ".5f"),
                text(full.get(MISMATCH), ".1e"),
                text(default.get(LOSS), ".6f"),
                text(default.get(MISMATCH), ".1e"),
                text(default.get(DEVIATION), ".1e"),
            ]
        )


def notes(rows, sizes):
    paragraphs = [
        f"""Generation: random weights in bf16, the best of {sizes.rounds} rounds without the first.
        `single:BATCH:PROMPT:NEW` is greedy, `groups:PROMPTS:MEMBERS:PROMPT:NEW:OBSERVATION:TURNS` is sampled.
        Tokens are generated ones and seconds are those of the whole call, prompts included; `prefill` counts
        tokens of the prompts.""",
        """transformers: `generate` with its default cache, which grows; nothing is compiled. In `groups` a
        turn is one call on all rows, which runs their history again; forage keeps its cache and shares
        prompts.""",
        """First round: what it took beyond the best one, for compiling and tuning kernels of new sizes. Cold:
        the same in a process before it that found no compiled kernels.""",
        f"""Training: {EPISODES} episodes in one group with a prompt in common, micro-batches of
        {sizes.micro_batch:,} tokens, the best of {sizes.steps} steps. Both: products in bf16, over f32
        masters where all weights are trained. PyTorch: autocast, TF32, fused AdamW; forage is compared with
        the faster of its two ways.""",
        """Card MiB: the most that nvidia-smi showed for the whole card, looked at twice a second. Pools are
        in it, so it is what was taken, not what was needed. Own count: what the program's allocator says
        (`max_memory_allocated`).""",
        f"""f32 on a GPU: matrix products may run in TF32, which keeps 10 bits of the mantissa, a relative
        error of up to 5e-4 in each. A draw that falls between two tokens by less than that takes the other
        one, and from there on the two are different runs, whose gap says nothing of the arithmetic. `held`
        asks for {LOSS_GAP:g} in every step all the same.""",
    ]
    again = [
        id
        for id, row in rows.known.items()
        if id.endswith("-forage")
        and "-groups-" not in id
        and (row["figures"].get("cached_prompt") or 0) > 0.01
    ]
    if again:
        paragraphs.append(f"Too good, for the cache held prompts of an earlier round: {', '.join(again)}.")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def origin(rows, machine):
    """Where, when and with what."""

    def every(key):
        return sorted({row[key] for row in rows.known.values() if row.get(key)})

    days = sorted({row["at"][:10] for row in rows.known.values()})
    gpu, driver = machine.get("gpu") or "a GPU without a name", machine.get("driver") or "unknown"
    commits = ", ".join(every("forage_commit")) or "of an unknown commit"
    yield (
        f"Measured {' to '.join(sorted({days[0], days[-1]}))} on {gpu}, driver {driver}, "
        f"NVRTC `{machine.get('nvrtc')}`, {machine.get('processor')}, with forage {commits} "
        f"(program {', '.join(every('program'))})."
    )
    peers = machine.get("peers")
    if peers:
        kernels = sorted({row["figures"].get("attention") for row in rows.known.values()} - {None})
        yield (
            f"Peers: torch {peers['torch']} (CUDA {peers['cuda']}), transformers {peers['transformers']}, "
            f"peft {peers['peft']}, attention by {', '.join(kernels) or 'nothing'}."
        )


def lines(rows, machine):
    sizes = REHEARSAL if rows.rehearse else FULL
    if rows.rehearse:
        yield "**A rehearsal in small sizes, perhaps where nothing is computed: nothing was measured.**\n"
    yield from origin(rows, machine)
    for part in (generation(rows, sizes), training(rows, sizes), smoke(rows)):
        yield ""
        yield from part
    yield ""
    yield from (f"- {note}" for note in notes(rows, sizes))


def verdict(rows, jobs):
    """Whether the figures hold, and the largest gap between losses of the processor and of the GPU in f32."""
    gaps = [loss_gap(processor, full) for _, processor, full, _ in smoke_steps(rows)]
    largest = max(gaps, default=math.inf)
    held = all(rows.good(job.id) for job in jobs) and (rows.rehearse or largest <= LOSS_GAP)
    return held, largest if math.isfinite(largest) else None
