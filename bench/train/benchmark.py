"""Optimizer steps on recorded rollouts beside PyTorch's, and whole GRPO steps beside TRL's, on the processor with two threads.

Ours: `layers` is what the program does, `graph` one autodiff graph through the whole decoder. PyTorch: with gradient checkpointing,
`plain` without, and `compiled`, which is `plain` under torch.compile. `shared`: the members of a group have one prompt, which is computed once here and for each of them there; `apart`:
they share nothing. The quickest step of a side counts. Losses and weights after one step are compared, so that both did the same work.

A GRPO step of ours is the time from one row of metrics to the next, whatever happens in it; TRL's is its callbacks' from begin to end,
with all completions in one micro-batch and in eight, of which the quicker counts.
"""

import json
import shutil
import statistics
import subprocess
import time

from harness.declare import ROOT, Aim, BenchError, Benchmark, Cell, Figure, Table
from harness.models import HALF_BILLION, SMALL, TINY, TORCH, model
from harness.peers import Venv
from harness.sides import Command, Function, rows
from harness.workspace import digest

PEERS = Venv("torch==2.15.0", "transformers==5.23.0", "peft==0.21.2", "trl==1.16.0", "datasets==5.2.0")
HERE = ROOT / "bench/train"
# Shape, LoRA rank or 0 for all weights, groups and members, whether members share their prompt, steps.
JOBS = {
    "small all shared": ("small", 0, (8, 8), True, 4),
    "small LoRA 8 shared": ("small", 8, (8, 8), True, 4),
    "small all apart": ("small", 0, (8, 8), False, 4),
    "small LoRA 8 apart": ("small", 8, (8, 8), False, 4),
    "0.5b LoRA 16 shared": ("0.5b", 16, (1, 2), True, 2),
}
OURS, THEIRS = ("layers", "graph"), ("checkpoint", "plain", "compiled")
PAIRS = (("layers", "checkpoint"), ("layers", "plain"), ("layers", "compiled"), ("graph", "plain"))
THREADS, MICRO_BATCH = 2, 1024
# Prompt styles of the search environment: a question alone, and Search-R1's instructions.
PROMPTS = {"short": "a question alone", "search_r1": "Search-R1's instructions"}
GRPO_STEPS = 6


def taken(lines):
    return {"seconds": min(line["seconds"] for line in lines), "loss": lines[0]["loss"], "tokens": lines[0]["tokens"]}


class Job:
    """The commands of a job."""

    def __init__(self, work, name):
        shape, self.rank, (groups, members), shared, self.steps = JOBS[name]
        self.work, self.name, self.python = work, name, PEERS.python(work.home)
        start, maker = model(work, work.parameters[shape], "f32"), HERE / "rollouts.py"
        size = [groups, members, work.parameters["length"][shape], 0.4, *([] if shared else ["apart"])]
        key = {"model": start.name, "size": size, "maker": digest(maker), "peers": TORCH.versions}
        make = lambda folder: work.run(TORCH.python(work.home), maker, start, folder / "rollouts.jsonl", *size)
        self.rollouts = work.input("rollouts", key, make) / "rollouts.jsonl"
        self.start = start
        if self.rank:
            # An adapter whose second matrix is 0 has a first step of signs alone; a trained one is compared.
            for steps, part in [(0, "fresh"), (3, "adapter")]:
                adapter = work.scratch / f"{name}-{part}"
                shutil.rmtree(adapter, ignore_errors=True)
                work.run(*self.ours("layers", steps, "--save", adapter))
                self.start = adapter

    def ours(self, way, steps, *more):
        graph = ["--graph"] if way == "graph" else []
        fixed = ["--rank", self.rank, "--threads", THREADS, "--micro-batch-tokens", MICRO_BATCH]
        return [self.work.forage, "bench", "train", self.start, self.rollouts, *fixed, *graph, "--steps", steps, *more]

    def theirs(self, way, steps, *more):
        return [self.python, HERE / "step.py", self.start, self.rollouts, self.rank, way, THREADS, MICRO_BATCH, steps, *more]

    def sides(self):
        ours = [Command(f"{self.name}/{way}", self.ours(way, self.steps), taken) for way in OURS]
        theirs = [Command(f"{self.name}/{way}", self.theirs(way, self.steps), taken) for way in THEIRS]
        return [[ours[0], theirs[0], ours[1], *theirs[1:]], [Function(f"{self.name}/weights", self.gaps)]]

    def gaps(self):
        """How far the weights after one step are from PyTorch's."""
        folders = {way: self.work.scratch / "after" / way for way in (*OURS, "plain")}
        shutil.rmtree(self.work.scratch / "after", ignore_errors=True)
        for way in OURS:
            self.work.run(*self.ours(way, 1, "--save", folders[way]))
        self.work.run(*self.theirs("plain", 1, folders["plain"]))
        gap = lambda way: rows(self.work.run(self.python, HERE / "gap.py", folders[way], folders["plain"]))[-1]["gap"]
        return {way: gap(way) for way in OURS}


def grpo(work, prompt):
    """Whole steps of ours and of TRL: 16 prompts x 8 completions of 64 tokens, one optimizer step, a coin as the reward."""
    start, folder = model(work, work.parameters["small"], "f32"), work.scratch / "grpo"
    settings = {
        "policy.checkpoint": json.dumps(str(start)),
        "environment.settings.max_generations": 1,
        "environment.settings.max_turn_tokens": 64,
        "environment.settings.max_episode_tokens": 640,
        "environment.settings.prompt": json.dumps(prompt),
        "engine.context_tokens": 640,
        "threads": THREADS,
        "reward": "{random = 1.0}",
        "grpo.steps": GRPO_STEPS,
        "grpo.prompts_per_step": 16,
        "grpo.group_size": 8,
        "grpo.evaluate_every": 0,
        "grpo.checkpoint_every": 0,
    }
    command = [work.forage, "train", ROOT / "configs/smoke.toml", "--out", folder]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]

    def ours():
        shutil.rmtree(folder, ignore_errors=True)
        metrics, arrived = folder / "metrics.jsonl", []
        with open(work.scratch / "grpo.log", "w") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=ROOT)
            while process.poll() is None:
                lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
                arrived += [time.perf_counter()] * (lines - len(arrived))
                time.sleep(0.002)
        if process.returncode:
            raise BenchError(f"a GRPO run ended with {process.returncode}:\n{(work.scratch / 'grpo.log').read_text()[-2000:]}")
        found = rows(metrics.read_text())
        episode = json.loads((folder / "rollouts/step-000000.jsonl").open().readline())["episode"]
        prompt_tokens = next(span["end"] for span in episode["tokens"]["spans"] if span["provenance"] == "prompt")
        # The first step touches memory; the run's end belongs to no step.
        steps = [later - earlier for earlier, later in zip(arrived, arrived[1:])]
        completion = statistics.mean(row["response/tokens_mean"] for row in found[1:])
        (work.scratch / f"{prompt}.json").write_text(json.dumps(episode["prompt"]))
        return {"seconds": statistics.median(steps), "completion_tokens": completion, "prompt_tokens": prompt_tokens}

    def theirs(micro_batches):
        def measure():
            # Ours goes first in the first round, and leaves its prompt.
            text = (work.scratch / f"{prompt}.json").read_text()
            lines = rows(work.run(PEERS.python(work.home), HERE / "trl_step.py", start, text, GRPO_STEPS, micro_batches))
            seconds = statistics.median(line["seconds"] for line in lines)
            tokens = {"completion_tokens": lines[-1]["completion_tokens_mean"], "prompt_tokens": lines[-1]["prompt_tokens"]}
            return {"seconds": seconds} | tokens

        return measure

    name = f"grpo {prompt}"
    trl = [Function(f"{name}/trl-{count}", theirs(count)) for count in (1, 8)]
    return [Function(f"{name}/forage", ours), *trl]


def sides(work):
    jobs = [group for name in JOBS for group in Job(work, name).sides()]
    return [*jobs, *(grpo(work, prompt) for prompt in PROMPTS)]


def over(one, other):
    return lambda found: found[one] / found[other]


def apart(name, tokens):
    """How far TRL's tokens are from ours, relative to ours."""
    return lambda found: max(abs(found[f"{name}/trl-{count}/{tokens}"] / found[f"{name}/forage/{tokens}"] - 1) for count in (1, 8))


def figures():
    for job in JOBS:
        for way in (*OURS, *THEIRS):
            yield Figure(f"{job}/{way}/seconds", "s per step", "lower")
            yield Figure(f"{job}/{way}/peak_mib", "MiB", "lower")
            yield Figure(f"{job}/{way}/loss", "loss")
            yield Figure(f"{job}/{way}/tokens", "tokens of a step")
        for one, other in PAIRS:
            yield Figure(f"{job}/{one} beside {other}", "ratio", "higher", over(f"{job}/{other}/seconds", f"{job}/{one}/seconds"))
        yield Figure(f"{job}/memory", "ratio", "higher", over(f"{job}/plain/peak_mib", f"{job}/layers/peak_mib"))
        for way in OURS:
            yield Figure(f"{job}/weights/{way}", "relative norm", "lower")
    losses = lambda found: max(abs(found[f"{job}/{way}/loss"] - found[f"{job}/plain/loss"]) for job in JOBS for way in OURS)
    yield Figure("loss_gap", "absolute", "lower", losses)
    weights = lambda found: max(found[f"{job}/weights/{way}"] for job in JOBS for way in OURS)
    yield Figure("weights_gap", "relative norm", "lower", weights)
    for prompt in PROMPTS:
        name = f"grpo {prompt}"
        for side in ("forage", "trl-1", "trl-8"):
            yield Figure(f"{name}/{side}/seconds", "s per step", "lower")
            yield Figure(f"{name}/{side}/completion_tokens", "tokens")
            yield Figure(f"{name}/{side}/prompt_tokens", "tokens")
        for kind in ("prompt", "completion"):
            yield Figure(f"{name}/{kind}s apart", "relative", "lower", apart(name, f"{kind}_tokens"))
        quicker = lambda found, name=name: min(found[f"{name}/trl-{count}/seconds"] for count in (1, 8)) / found[f"{name}/forage/seconds"]
        yield Figure(f"{name}/ratio", "ratio", "higher", quicker)


def row(job, one, other):
    cell = lambda name, decimals: Cell(f"{job}/{name}", decimals)
    times = [cell(f"{one}/seconds", 2), cell(f"{other}/seconds", 2), cell(f"{one} beside {other}", 2)]
    return [job, one, other, *times, cell(f"{one}/peak_mib", 0), cell(f"{other}/peak_mib", 0), cell(f"weights/{one}", 6)]


def grpo_row(prompt, words):
    cell = lambda name, decimals=2: Cell(f"grpo {prompt}/{name}", decimals)
    sides = [cell(f"{side}/seconds") for side in ("forage", "trl-1", "trl-8")]
    tokens = [cell("forage/completion_tokens", 1), cell("trl-1/completion_tokens", 1)]
    return [words, cell("forage/prompt_tokens", 0), *sides, cell("ratio"), *tokens]


BENCHMARK = Benchmark(
    title="Optimizer steps beside PyTorch, GRPO steps beside TRL",
    sides=sides,
    parameters={"small": SMALL, "0.5b": HALF_BILLION, "length": {"small": "240~", "0.5b": "1024"}},
    rehearsal={"small": TINY, "0.5b": TINY, "length": {"small": "48~", "0.5b": "64"}},
    peers=(PEERS,),
    figures=list(figures()),
    aims=[
        *(
            Aim(f"{job}/layers beside plain", ">=", 1, f"{job}: speed over PyTorch without checkpointing")
            for job in JOBS
        ),
        # A small model's memory is mostly that of Python's modules.
        Aim("0.5b LoRA 16 shared/memory", ">=", 2, "0.5b: PyTorch's memory without checkpointing over ours"),
        Aim("0.5b LoRA 16 shared/layers/peak_mib", "<=", 12 * 1024, "0.5b: MiB at the most"),
        *(Aim(f"grpo {prompt}/ratio", ">=", 2, f"GRPO step, {words}: TRL's time over ours") for prompt, words in PROMPTS.items()),
        # A step of shorter prompts or completions is another step.
        *(
            Aim(f"grpo {prompt}/{kind}s apart", "<=", 0.1, f"GRPO step, {words}: tokens of a {kind}, TRL's from ours")
            for prompt, words in PROMPTS.items()
            for kind in ("prompt", "completion")
        ),
        Aim("loss_gap", "<=", 1e-6, "the loss of the first step, from PyTorch's"),
        Aim("weights_gap", "<=", 1e-3, "a tensor after one step, from PyTorch's, relative to its norm"),
    ],
    tables=[
        Table(
            ("weights", "ours", "PyTorch", "s per step", "PyTorch's", "ratio", "MiB", "PyTorch's", "weights apart"),
            [row(job, *pair) for job in JOBS for pair in PAIRS],
        ),
        Table(
            ("GRPO step, prompt", "tokens of it", "s", "TRL, one micro-batch", "TRL, eight", "ratio", "tokens written", "by TRL"),
            [grpo_row(*prompt) for prompt in PROMPTS.items()],
        ),
    ],
)
