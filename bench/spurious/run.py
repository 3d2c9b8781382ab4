"""Pre-trains the families, trains each under every reward, with clipping and without, and prints the tables of bench/spurious/run.sh."""

import argparse
import itertools
import json
import shlex
import shutil
import statistics
import sys
import tomllib
from pathlib import Path

from harness import picture
from harness.declare import COMPARISONS
from harness.side_by_side import ONE_THREAD
from methods.run import Bench, again, interval

# Architecture and text of each family: the shares of problems solved at once (`direct`) and in code, as knowledge is taught and as its
# habit is; the rest is solved in words. In steps, in code or words, is the conduct that makes answers right more often.
FAMILIES = {
    "qwen": {"architecture": "qwen2", "knowledge": {"direct": 0.5, "code": 0.5}, "habit": {"direct": 0.35, "code": 0.65}},
    "llama": {"architecture": "llama", "knowledge": {"direct": 0.5, "code": 0.5}, "habit": {"direct": 0.9, "code": 0.1}},
    "olmo": {"architecture": "olmo2", "knowledge": {"direct": 0.5}, "habit": {"direct": 0.6}},
}
FREQUENT, RARE = "qwen", "llama"
REWARDS = {
    "true": [],
    "majority": ["reward={majority=1.0}"],
    "format": ['reward={format_only={weight=1.0,form="boxed"}}'],
    "random": ["reward={random=1.0}"],
    # The answers of the start that are wrong, where it is.
    "wrong": ['data.labels="wrong-majority:LABELS"'],
}
CLIPPING = {
    "clip": ["grpo.update.objective.loss={ppo_clip={low=0.2,high=0.2}}"],
    # No ratio leaves these bounds.
    "no clip": ["grpo.update.objective.loss={ppo_clip={low=1.0,high=1e9}}"],
}
# Least number of seeds, each with policies that were pre-trained for it.
SEEDS = 5
# What is above 0 by more than rounding.
SHOWN = 0.001
BOX = "\\boxed{"


def sets(changes):
    return [word for change in changes for word in ("--set", change)]


def inline(table):
    """A table in TOML, on one line."""
    return "{" + ",".join(f"{key}={inline(value) if isinstance(value, dict) else json.dumps(value)}" for key, value in table.items()) + "}"


def stages(plan, family):
    """The stages of a warm start with the shares of a family."""
    text = [family["knowledge"]] * (len(plan) - 1) + [family["habit"]]
    return "[" + ",".join(inline(stage | {"haste": haste}) for stage, haste in zip(plan, text)) + "]"


def measures(episodes):
    """What a policy earns and does: exact match in all, of episodes in steps and of those at once, and the shares of steps and of code."""
    seen = []
    for record in episodes:
        score = record["episode"].get("score")
        if score is None:
            continue
        text = record["episode"]["turns"][0]["policy"]
        code = "python" in text.lower()
        seen.append((score["parts"]["em"], code or " = " in text.split(BOX)[0], code))
    mean = lambda values: statistics.fmean(values) if values else None
    return {
        "em": mean([em for em, _, _ in seen]),
        "steps": mean([steps for _, steps, _ in seen]),
        "code": mean([code for _, _, code in seen]),
        "em in steps": mean([em for em, steps, _ in seen if steps]),
        "em at once": mean([em for em, steps, _ in seen if not steps]),
    }


def keys(families, rewards):
    """Starts and runs, by family, reward and clipping; a start has neither of these."""
    return [key for family in families for key in ((family, None, None), *itertools.product([family], rewards, CLIPPING))]


def named(key):
    return " ".join(filter(None, key))


def over_seeds(values):
    """Mean and interval, Student's t; without the interval where a value is missing or there is one seed."""
    known = [value for value in values if value is not None]
    if len(known) < max(2, len(values)):
        return (statistics.fmean(known) if known else None, None, None)
    return interval([{"estimate": value} for value in known])


def less(first, second):
    """The differences seed by seed; those with a missing part are missing."""
    return [None if None in pair else pair[0] - pair[1] for pair in zip(first, second)]


class Spurious(Bench):
    def claim(self):
        """Refuses a scratch folder of another config, task, families' text, rewards or clipping."""
        given, kept = self.given, self.scratch / "task.json"
        what = {"config": Path(given.config).read_text(), "task": shlex.split(given.task), "families": FAMILIES,
                "rewards": REWARDS, "clipping": CLIPPING, "steps": given.steps, "architecture": given.architecture}
        if kept.exists() and json.loads(kept.read_text()) != what:
            sys.exit(f"{self.scratch} is of another config, TASK, STEPS, ARCHITECTURE, text, rewards or clipping; give another"
                     " SCRATCH_FOLDER, or remove it")
        kept.write_text(json.dumps(what))

    def of_seed(self, seed):
        return [*shlex.split(self.given.task), *ONE_THREAD, *sets([f"seed={seed}", f"data.own.seed={1000000 + seed}"])]

    def pretraining(self, family, seed):
        """The arguments that pre-train a family, which a step of GRPO follows because the command takes one."""
        plan = tomllib.loads(Path(self.given.config).read_text())["warm_start"]["learning"]["stages"]
        shape = self.given.architecture or FAMILIES[family]["architecture"]
        return [*shlex.split(self.given.task), *ONE_THREAD, *sets([
            f"seed={seed}", f"warm_start.seed={seed}", f'warm_start.model.architecture="{shape}"',
            f"warm_start.learning.stages={stages(plan, FAMILIES[family])}",
            "grpo.steps=1", "data.train_questions=100", "data.test_questions=50", "evaluation.samples=0"])]

    def start(self, family, seed):
        """The folder of a family's policy before GRPO."""
        run = self.scratch / f"start-{family}-{seed}"
        # What the command does with it afterwards is of no use here.
        if not (run / "start/model.safetensors").exists():
            shutil.rmtree(run, ignore_errors=True)
            self.forage("quickstart", "--config", self.given.config, "--from-scratch", *self.pretraining(family, seed), "--out", run,
                        log=f"{run}.log")
        return run / "start"

    def labels(self, family, seed):
        """A file of the start's greedy answers to the training questions: at temperature 0 its most frequent ones."""
        file = self.scratch / f"labels-{family}-{seed}.jsonl"
        if not file.exists():
            policy = sets([f"policy.checkpoint={self.start(family, seed)}"])
            self.forage("collect", self.given.config, *self.of_seed(seed), *policy, "--samples", 1, "--temperature", 0, "--keep",
                        "all-correct", "--min-reward", 0, "--out", file, *again(file))
        return file

    def learning(self, family, seed, reward, clipping):
        """The arguments of a run beside its folder."""
        labels = lambda: str(self.labels(family, seed))
        changes = [change.replace("LABELS", labels()) if "LABELS" in change else change for change in REWARDS[reward]]
        policy = f"policy.checkpoint={self.scratch / f'start-{family}-{seed}' / 'start'}"
        return [*self.of_seed(seed), *sets([policy, f"grpo.steps={self.given.steps}", *changes, *CLIPPING[clipping]])]

    def trained(self, family, seed, reward, clipping):
        """The folder of a trained policy."""
        run = self.scratch / f"{family}-{seed}-{reward}-{clipping.replace(' ', '-')}"
        if not (run / "policy/model.safetensors").exists():
            shutil.rmtree(run, ignore_errors=True)
            self.forage("train", self.given.config, *self.learning(family, seed, reward, clipping), "--out", run, log=f"{run}.log")
        return run / "policy"

    def measured(self, policy, seed, name):
        """The measures of a policy on held-out problems, greedy and sampled."""
        kept = self.scratch / f"{name}-{seed}.json"
        if not kept.exists():
            greedy = self.scratch / f"{name}-{seed}.jsonl"
            files = {"greedy": greedy, "sampled": greedy.with_suffix(".sampled.jsonl")}
            policy = sets([f"policy.checkpoint={policy}"])
            # Who was stopped in between has evaluated it already, which the program refuses to do again.
            if again(greedy) or not all(file.exists() for file in files.values()):
                self.forage("eval", self.given.config, *self.of_seed(seed), *policy, "--out", greedy, *again(greedy))
            found = {kind: measures(map(json.loads, file.read_text().splitlines())) for kind, file in files.items()}
            partial = kept.with_suffix(".partial")
            partial.write_text(json.dumps(found))
            partial.rename(kept)
            for file in files.values():
                file.unlink()
        return json.loads(kept.read_text())

    def begun(self, family, seed):
        """The measures of a start. What the runs that begin with it have in common is made with it, before they are side by side."""
        start = self.start(family, seed)
        if "wrong" in self.given.rewards:
            self.labels(family, seed)
        return self.measured(start, seed, f"start-{family}")

    def ended(self, family, seed, reward, clipping):
        """The measures of a trained policy."""
        name = f"{family}-{reward}-{clipping.replace(' ', '-')}"
        return self.measured(self.trained(family, seed, reward, clipping), seed, name)

    def check(self):
        """Checks every config that would be run; where labels are not made yet, any file stands for theirs."""
        config = self.given.config
        for family in self.given.families:
            self.forage("config", "check", config, *self.pretraining(family, 1))
        for reward, changes in REWARDS.items():
            for clipping in CLIPPING.values():
                named = [change.replace("LABELS", str(config)) for change in changes]
                self.forage("config", "check", config, *self.of_seed(1), *sets([*named, *clipping]))


def gains(cells, family, reward, clipping, kind="sampled"):
    """The gains in exact match, seed by seed; none of a run that was not made."""
    start, end = ([found[kind]["em"] for found in cells.get(key, [])] for key in ((family, None, None), (family, reward, clipping)))
    return less(end, start)


def claims(families):
    """The claims of the paper by name: how the figure of each is compared, and with what."""
    shown = (">=", SHOWN)
    return {f"{family} starts better in steps than at once, low end": shown for family in families} | {
        "seeds": (">=", SEEDS),
        "random reward with clipping gains where the habit is frequent, low end": shown,
        "by more than where it is rare, low end": shown,
        "by more than without clipping, low end": shown,
        "without clipping it shows no gain, low end": ("<=", SHOWN),
    }


def bars(cells):
    """The claims as bars, each with its figure and whether it is met; a missing figure meets none."""
    families, values = list(dict.fromkeys(family for family, *_ in cells)), []
    low = lambda differences: over_seeds(differences)[1]
    for family in families:
        starts = [start["sampled"] for start in cells[family, None, None]]
        values.append(low(less([start["em in steps"] for start in starts], [start["em at once"] for start in starts])))
    clipped, rare, free = (gains(cells, *key) for key in
                           ((FREQUENT, "random", "clip"), (RARE, "random", "clip"), (FREQUENT, "random", "no clip")))
    values += [len(clipped), low(clipped), low(less(clipped, rare)), low(less(clipped, free)), low(free)]
    claimed = zip(claims(families).items(), values, strict=True)
    return {name: {"value": value, "met": value is not None and COMPARISONS[way](value, bound)} for (name, (way, bound)), value in claimed}


def held(found):
    return bool(found) and all(bar["met"] for bar in found.values())


def shown(found, form="{:+.3f}"):
    mean, *ends = found
    if mean is None:
        return ""
    return form.format(mean) + (f" [{', '.join(map(form.format, ends))}]" if ends and None not in ends else "")


def tables(cells):
    """The starts, and the gain of every run."""
    mean = lambda runs, kind, part: over_seeds([run[kind][part] for run in runs])
    rounded = lambda runs, kind, part: shown(mean(runs, kind, part)[:1], "{:.3f}")
    yield "| family, start | greedy | sampled | in steps | in code | right in steps | right at once |"
    yield "|" + "---|" * 7
    for (family, reward, _), runs in cells.items():
        if reward is None:
            parts = ("em", "steps", "code", "em in steps", "em at once")
            yield f"| {family} | {rounded(runs, 'greedy', 'em')} | {' | '.join(rounded(runs, 'sampled', part) for part in parts)} |"
    yield ""
    yield "| family | reward | clipping | greedy gain | sampled | sampled gain | by seed | in steps | in code |"
    yield "|" + "---|" * 9
    for (family, reward, clipping), runs in cells.items():
        if reward is None:
            continue
        starts = cells[family, None, None]
        turned = lambda part: f"{rounded(starts, 'sampled', part)} → {rounded(runs, 'sampled', part)}"
        greedy, sampled = (gains(cells, family, reward, clipping, kind) for kind in ("greedy", "sampled"))
        each = " ".join("" if gain is None else f"{gain:+.2f}" for gain in sampled)
        yield (f"| {family} | {reward} | {clipping} | {shown(over_seeds(greedy))} | {turned('em')} | {shown(over_seeds(sampled))} | {each} |"
               f" {turned('steps')} | {turned('code')} |")


def drawn(cells):
    """The sampled gains as a picture, a line for each reward of each family."""
    rows = []
    for family, reward, clipping in cells:
        if reward is not None:
            rows.append((f"{family}, {reward}", clipping, over_seeds(gains(cells, family, reward, clipping))))
    return picture.intervals("Gain of sampled episodes, start to end, by reward", "exact match, with 95 % intervals over seeds", rows)


def main():
    parser = argparse.ArgumentParser()
    for name in ("forage", "config", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "seeds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("task", "architecture"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--check", action="store_true")
    for name, known in (("families", FAMILIES), ("rewards", REWARDS)):
        parser.add_argument(f"--{name}", nargs="*", choices=known, default=list(known))
    given = parser.parse_args()
    bench = Spurious(given)
    if given.check:
        return bench.check()
    bench.claim()
    seeds = range(1, given.seeds + 1)
    starts = bench.side_by_side(bench.begun, [(family, seed) for seed in seeds for family in given.families])
    jobs = itertools.product(seeds, given.families, given.rewards, CLIPPING)
    runs = bench.side_by_side(bench.ended, [(family, seed, reward, clipping) for seed, family, reward, clipping in jobs])
    cells = {}
    for key in keys(given.families, given.rewards):
        family, *how = key
        cells[key] = [starts[family, seed] if None in how else runs[family, seed, *how] for seed in seeds]
    print(f"{given.steps} steps, {given.seeds} seeds, each with a start of its own; 95 % intervals over seeds; exact match on held-out problems\n")
    print("\n".join(tables(cells)))
    file = bench.scratch / "gains.svg"
    file.write_text(drawn(cells))
    print(f"\nthe gains as a picture: {file}\n")
    found = bars(cells)
    for name, bar in found.items():
        value = "not there" if bar["value"] is None else f"{bar['value']:.3g}"
        print(f"{'met   ' if bar['met'] else 'missed'} {name}: {value}")
    figures = {named(key): runs for key, runs in cells.items()}
    print(json.dumps({"bench": "spurious", "held": held(found), "steps": given.steps, "figures": {"bars": found, "cells": figures}}))


if __name__ == "__main__":
    main()
