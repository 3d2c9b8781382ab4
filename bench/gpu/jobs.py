"""The jobs of the bench: what is run, how long it may take, and what is kept of what it prints."""

import hashlib
import json
import math
import pathlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEVICE = "cuda:0"
MODELS = {"0.5b": "Qwen2.5-0.5B", "3b": "Qwen2.5-3B"}

# Model, name, job, and the seconds to expect of forage and of the peer.
GENERATE = [
    ("0.5b", "decode-1", "single:1:512:128", 40, 30),
    ("0.5b", "decode-32", "single:32:512:128", 120, 30),
    ("0.5b", "decode-256", "single:256:512:128", 60, 35),
    ("0.5b", "long-32", "single:32:4096:128", 60, 40),
    ("0.5b", "prefill", "single:8:2048:1", 40, 25),
    ("0.5b", "groups", "groups:8:8:512:128:300:3", 60, 50),
    ("3b", "decode-1", "single:1:512:128", 45, 35),
    ("3b", "decode-64", "single:64:512:128", 150, 40),
    ("3b", "decode-256", "single:256:512:128", 90, 60),
    ("3b", "long-32", "single:32:4096:128", 90, 60),
    ("3b", "prefill", "single:8:2048:1", 45, 30),
    ("3b", "groups", "groups:8:8:512:128:300:3", 75, 60),
]
# Rows of two processes, both in the seconds above: the first finds no compiled kernel, the second finds the
# first one's.
TWICE = {"generate-0.5b-decode-32", "generate-3b-decode-64"}
# Model, name, rank (0: all weights), base, tokens of an episode, and the seconds to expect of forage, of the
# peer with gradient checkpointing and of the peer without.
TRAIN = [
    ("0.5b", "lora", 16, "bf16", 1024, 60, 30, 30),
    ("0.5b", "full", 0, "f32", 1024, 60, 30, 30),
    ("3b", "lora", 16, "bf16", 1024, 90, 40, 40),
    ("3b", "full", 0, "f32", 1024, 120, 45, 45),
    ("0.5b", "lora-4096", 16, "bf16", 4096, 90, 40, 40),
]
# What is wanted most, for the machine may go away. The rest follows in the order of the lists.
FIRST = [
    "smoke",
    "generate-0.5b-decode-32",
    "generate-0.5b-groups",
    "train-0.5b-lora",
    "generate-3b-decode-64",
    "generate-3b-groups",
    "train-3b-lora",
]
EPISODES = 8
LONGEST = 40 * 60

LOSS, NORM = "policy/loss", "optim/grad_norm"
MISMATCH, DEVIATION = "mismatch/logprob_abs_diff", "mismatch/ratio_deviation_max"
SMOKE_KEYS = [LOSS, NORM, MISMATCH, DEVIATION, "time/rollout_s", "time/update_s"]


class Failed(Exception):
    """A row has no result; the text says why."""


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    rounds: int
    steps: int
    micro_batch: int
    # What batches, prompts and episodes are divided by.
    less: int
    # New tokens of a turn at most.
    new: int
    # Peers run this shape instead, on the processor.
    peer: str | None = None

    def job(self, job):
        """A generation job in this size."""
        kind, *numbers = job.split(":")
        numbers = [int(number) for number in numbers]
        # The members of a group and the turns stay, for they are what the job is about.
        divided, new = ({0, 1}, 2) if kind == "single" else ({0, 2, 4}, 3)
        for place in divided:
            numbers[place] = max(1, numbers[place] // self.less)
        numbers[new] = min(numbers[new], self.new)
        return ":".join([kind, *map(str, numbers)])


FULL = Sizes(rounds=3, steps=4, micro_batch=8192, less=1, new=128)
REHEARSAL = Sizes(rounds=2, steps=2, micro_batch=1024, less=8, new=4, peer="tiny")


@dataclass
class Job:
    """One result of one program."""

    row: str
    side: str
    # Seconds.
    expected: int
    # Run one after another, each in a process of its own.
    commands: list[list[str]]
    # From the lines of JSON of every command to what is kept; may raise `Failed`.
    figures: Callable
    # What its processes get beside the caller's environment.
    environment: dict[str, str]
    before: Callable = lambda: None

    @property
    def id(self):
        return f"{self.row}-{self.side}"

    @property
    def of_peer(self):
        return self.side.startswith("torch")


def number(line, key):
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Failed(f"`{key}` in its output is {json.dumps(value)}, not a number")
    return value


def the_line(lines):
    if not lines:
        raise Failed("it printed no line of JSON")
    return lines[-1]


def generated(commands):
    """Of one process, or of a cold one and a warm one."""
    *cold, last = map(the_line, commands)
    number(last, "tokens_per_second")
    if cold:
        last["cold_first_round_extra_s"] = number(cold[0], "first_round_extra_s")
    return last


def trained(steps, rehearse):
    def figures(commands):
        (lines,) = commands
        lines = [line for line in lines if "seconds" in line]
        if len(lines) != steps:
            raise Failed(f"it printed {len(lines)} steps, not {steps}")
        seconds = [number(line, "seconds") for line in lines]
        # A rehearsal's device may compute nothing; anywhere else a loss that is not a number is a fault.
        read = dict.get if rehearse else number
        kept = {key: [read(line, key) for line in lines] for key in ("loss", "grad_norm")}
        return lines[-1] | kept | {"seconds": min(seconds), "step_seconds": seconds}

    return figures


def peer_trained(commands):
    (lines,) = commands
    line = the_line(lines)
    if not line.get("out_of_memory"):
        number(line, "seconds")
    return line


def sampled(path):
    """A short name for what the episodes of a step say: the same for the same tokens."""
    if not path.exists():
        return None
    with path.open() as lines:
        episodes = [json.loads(line)["episode"] for line in lines]
    episodes.sort(key=lambda episode: (episode["group"], episode["member"]))
    ids = [episode["tokens"]["ids"] for episode in episodes]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:12]


def smoked(folder):
    def figures(_):
        file = folder / "metrics.jsonl"
        if not file.exists():
            raise Failed(f"{file} is not there")
        steps = []
        for line in file.read_text().splitlines():
            row = json.loads(line)
            # What a step does not have (figures of an update, where nothing was to be learned) is left out
            # here too.
            kept = {key: row[key] for key in ["step", *SMOKE_KEYS] if key in row}
            steps.append(kept | {"tokens": sampled(folder / f"rollouts/step-{row['step']:06}.jsonl")})
        if not steps:
            raise Failed(f"{file} has no rows")
        return {"steps": steps}

    return figures


def write_rollouts(path, length):
    """One group with a prompt in common, then three turns: 40 % of all tokens are the policy's.

    Tokens are drawn at random; their log-probabilities are about those of a uniform choice, which is what
    random weights make.
    """
    random.seed(5)

    def draw(count):
        return [random.randrange(151936) for _ in range(count)]

    prompt = draw(length * 2 // 7)
    rest = length - len(prompt)
    with path.open("w") as out:
        for member in range(EPISODES):
            mask = [0] * length
            for turn in range(3):
                first = len(prompt) + rest * turn // 3
                written = length * 4 // 30
                mask[first : first + written] = [1] * written
            row = {"group": 0, "ids": prompt + draw(rest), "mask": mask}
            row |= {"logprobs": [-11.9] * length, "reward": float(member % 3 == 0)}
            out.write(json.dumps(row) + "\n")


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)


def kernel_cache(scratch, name):
    """Where forage's and the driver's compiled kernels go."""
    # Not to the user's: what is called cold is cold.
    folder = scratch / "cache" / name
    return {"XDG_CACHE_HOME": str(folder), "CUDA_CACHE_PATH": str(folder / "driver")}


class Plan:
    """Makes the jobs."""

    def __init__(self, forage, python, scratch, rehearse):
        self.forage, self.python, self.scratch, self.rehearse = forage, python, scratch, rehearse
        self.sizes = REHEARSAL if rehearse else FULL

    def jobs(self):
        """All of them, those wanted most first."""
        jobs = [*self.smoke(), *self.generate(), *self.train()]
        if not self.python:
            jobs = [job for job in jobs if not job.of_peer]
        assert sum(job.expected for job in jobs) <= LONGEST, "the rows take too long together"
        if self.rehearse:
            for job in jobs:
                job.expected = 10
        return sorted(jobs, key=lambda job: FIRST.index(job.row) if job.row in FIRST else len(FIRST))

    def peer(self, row, side, expected, figures, program, model, *options):
        shape, device = (self.sizes.peer, "cpu") if self.sizes.peer else (MODELS[model], "cuda")
        command = [str(self.python), str(HERE / program), shape, *options, "--device", device]
        # Nothing is ever downloaded.
        environment = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        return Job(row, side, expected, [command], figures, environment)

    def smoke(self):
        f32 = ["--set", 'engine.dtype="f32"']
        runs = [("cpu", "cpu", [], 5), ("cuda-f32", DEVICE, f32, 60), ("cuda", DEVICE, [], 45)]
        for side, device, options, expected in runs:
            folder = self.scratch / f"smoke-{side}"
            config = str(ROOT / "configs/smoke.toml")
            command = [self.forage, "train", config, "--device", device, "--out", str(folder), *options]
            job = Job("smoke", side, expected, [command], smoked(folder), kernel_cache(self.scratch, "smoke"))
            job.before = lambda folder=folder: remove(folder)
            yield job

    def generate(self):
        rounds = ["--rounds", str(self.sizes.rounds)]
        for model, name, full_job, expected, peer_expected in GENERATE:
            row, job = f"generate-{model}-{name}", self.sizes.job(full_job)
            command = [self.forage, "bench", "generate", f"random:{MODELS[model]}", "--weights", "bf16"]
            command += ["--device", DEVICE, *rounds, job]
            ours = Job(row, "forage", expected, [command], generated, kernel_cache(self.scratch, model))
            if row in TWICE:
                ours.commands = [command, command]
                ours.before = lambda folder=self.scratch / "cache" / model: remove(folder)
            yield ours
            yield self.peer(row, "torch", peer_expected, generated, "peer_generate.py", model, job, *rounds)

    def train(self):
        sizes = ["--micro-batch-tokens", str(self.sizes.micro_batch), "--steps", str(self.sizes.steps)]
        for model, name, rank, base, full_length, expected, checkpointing, plain in TRAIN:
            row, length = f"train-{model}-{name}", full_length // self.sizes.less
            file = self.scratch / f"rollouts-{length}.jsonl"
            options = [str(file), "--rank", str(rank), *sizes]
            command = [self.forage, "bench", "train", f"random:{MODELS[model]}", *options]
            # Products in bf16, as runs on GPUs have them by default and the peers by autocast.
            command += ["--base", base, "--bf16", "--device", DEVICE]
            figures, cache = trained(self.sizes.steps, self.rehearse), kernel_cache(self.scratch, model)
            jobs = [Job(row, "forage", expected, [command], figures, cache)]
            ways = [("torch-checkpointing", checkpointing, ["--checkpointing"]), ("torch-plain", plain, [])]
            for side, seconds, more in ways:
                peer = self.peer(row, side, seconds, peer_trained, "peer_train.py", model, *options, *more)
                jobs.append(peer)
            for job in jobs:
                job.before = lambda file=file, length=length: write_rollouts(file, length)
                yield job
