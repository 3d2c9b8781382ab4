"""Trains the methods of methods.txt with as many episodes each and prints the table of bench/methods/run.sh."""

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
# Steps at the end of a run whose reward is averaged.
LAST = 10
# Sampled episodes of each held-out question: a small push turns greedy ones as a whole.
SAMPLES = 4


def methods(asked):
    lines = Path(__file__).with_name("methods.txt").read_text().splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    found = {name: arguments for name, *arguments in filter(None, found)}
    unknown = set(asked) - set(found)
    if unknown:
        sys.exit(f"methods.txt has no {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return {name: arguments for name, arguments in found.items() if not asked or name in asked}


def again(out):
    """The argument by which a command goes on that was stopped on its way to a file."""
    return ["--resume"] if Path(out).with_suffix(".resume.json").exists() else []


def rows(run):
    return [json.loads(line) for line in open(run / "metrics.jsonl")]


class Bench:
    def __init__(self, given):
        self.given = given
        self.scratch = Path(given.scratch)

    def forage(self, *arguments, log=None):
        """What a command prints; its errors go to a file."""
        command = [self.given.forage, *map(str, arguments)]
        with open(log or self.scratch / "commands.log", "a") as errors:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: exit code {done.returncode}; see {errors.name}")
        return done.stdout

    def world(self, seed):
        return [*shlex.split(self.given.task), "--set", f"seed={seed}", "--set", f"data.world.seed={1000000 + seed}"]

    def claim(self):
        """Refuses a scratch folder of another config or task, whose episodes are of other questions."""
        task, kept = shlex.split(self.given.task), self.scratch / "task.json"
        what = {"config": Path(self.given.config).read_text(), "task": task}
        if kept.exists() and json.loads(kept.read_text()) != what:
            sys.exit(f"{self.scratch} is of another config or TASK; give another SCRATCH_FOLDER")
        kept.write_text(json.dumps(what))

    def episodes(self, policy, seed, name):
        """Greedy and sampled episodes of a policy, None for the config's own, on the held-out questions."""
        greedy, sampled = (self.scratch / f"{name}-{seed}{kind}.jsonl" for kind in ("", ".sampled"))
        if not (greedy.exists() and sampled.exists()):
            checkpoint = ["--set", f"policy.checkpoint={policy}"] if policy else []
            self.forage("eval", self.given.config, *self.world(seed), *checkpoint, "--samples", SAMPLES, "--out", greedy, *again(greedy))
        return greedy, sampled

    def train(self, name, arguments, seed):
        """The run of a method, and how many of its steps are within the budget of episodes."""
        run = self.scratch / f"{name}-{seed}"
        refills = any("grpo.refills" in argument for argument in arguments)
        if not (run / "minutes").exists():
            shutil.rmtree(run, ignore_errors=True)
            # Which checkpoint a run that plays more than it plans is taken at shows when it is done. Steps have five times as many episodes
            # at most (`refills = 4`), so that two checkpoints are a tenth of the budget apart at most.
            every, keep = (max(1, self.given.steps // 50), self.given.steps) if refills else (0, 1)
            options = {"grpo.steps": self.given.steps, "grpo.checkpoint_every": every, "grpo.keep_checkpoints": keep,
                       "grpo.sentinel.stop": "false", "grpo.evaluate_every": 0}
            options = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
            start = time.monotonic()
            self.forage("train", self.given.config, *self.world(seed), *options, *arguments, "--out", run, log=f"{run}.log")
            (run / "arguments").write_text(shlex.join(arguments))
            (run / "minutes").write_text(f"{(time.monotonic() - start) / 60:.3f}")
        grpo = tomllib.loads((run / "config.toml").read_text())["grpo"]
        if grpo["steps"] != self.given.steps:
            sys.exit(f"{run} was trained for {grpo['steps']} steps and not for {self.given.steps}; give another SCRATCH_FOLDER, or remove it")
        kept = run / "arguments"
        if not kept.exists() or kept.read_text() != shlex.join(arguments):
            sys.exit(f"{run} was trained with other arguments than methods.txt has; give another SCRATCH_FOLDER, or remove it")
        replayed = grpo.get("replay", {}).get("share", 0) * grpo["prompts_per_step"]
        planned = grpo["prompts_per_step"] - round(replayed)
        played = [(planned + row.get("curriculum/refilled_groups", 0)) * grpo["group_size"] for row in rows(run)]
        within, taken, spent = self.given.budget, 0, 0
        saved = {int(folder.name.removeprefix("step-")): folder for folder in (run / "checkpoints").glob("step-*")}
        for step in sorted(saved):
            if taken == 0 or sum(played[:step]) <= within:
                taken, spent = step, sum(played[:step])
        for step, folder in saved.items():
            if step != taken:
                shutil.rmtree(folder)
        return run, saved[taken] / "model", taken, spent

    def compare(self, before, after):
        """Difference of exact match, with its interval over questions."""
        found = json.loads(self.forage("compare", before, after, "--json"))["metrics"]["em"]
        return found["a"], found["b"], found["difference"]

    def budget(self):
        text = self.forage("train", self.given.config, *shlex.split(self.given.task), "--dry-run")
        grpo = tomllib.loads(text)["grpo"]
        return self.given.steps * grpo["prompts_per_step"] * grpo["group_size"]


def interval(differences):
    """Mean with its interval: over seeds where there are several, else over the questions of the one."""
    if len(differences) == 1:
        return tuple(differences[0][part] for part in ("estimate", "low", "high"))
    values = [difference["estimate"] for difference in differences]
    degrees = len(values) - 1
    width = STUDENT[min(degrees, len(STUDENT)) - 1] * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return mean, mean - width, mean + width


def cell(found):
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*found)


def held(figures, budget):
    """Whether the methods played as many episodes each: what the comparison rests on. A tenth may be lacking, since a run that plays more
    than it plans is taken at a checkpoint. Nothing says how far ahead a method must be."""
    spent = [episodes for found in figures.values() for episodes in found["episodes"]]
    return bool(spent) and 0.9 * budget <= min(spent) and max(spent) <= budget


def told(figures, first):
    """Which methods are ahead of the first, which are behind it, and of which neither is shown, by their intervals."""
    groups = {f"ahead of {first}": [], f"behind {first}": [], "neither shown": []}
    ahead, behind, neither = groups.values()
    for name, found in figures.items():
        if found["lead"]:
            _, low, high = found["lead"]
            (ahead if low > 0 else behind if high < 0 else neither).append(name)
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in groups.items() if names)


def main():
    parser = argparse.ArgumentParser()
    for name in ("forage", "config", "scratch"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "seeds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--task", default="")
    parser.add_argument("--methods", nargs="*", default=[])
    given = parser.parse_args()
    bench = Bench(given)
    bench.claim()
    given.budget = bench.budget()
    seeds = range(1, given.seeds + 1)
    chosen = methods(given.methods)
    first = next(iter(chosen))
    kind = "seeds" if given.seeds > 1 else "questions"
    print(f"{given.steps} steps, {given.seeds} seeds, {given.budget} episodes a run; 95 % intervals over {kind}; exact match, greedy and "
          f"of {SAMPLES} samples a question; gains and leads are of the samples")
    print(f"| method | episodes | steps | reward, last {LAST} | greedy | start | trained | gain | against {first} | minutes |")
    print("|" + "---|" * 10)
    figures, plays = {}, {}
    for name, arguments in chosen.items():
        spent, steps, reward, greedy, start, trained, gains, leads, minutes = ([] for _ in range(9))
        for seed in seeds:
            run, policy, taken, episodes = bench.train(name, arguments, seed)
            before, after = bench.episodes(None, seed, "start"), bench.episodes(policy, seed, name)
            greedy.append(bench.compare(before[0], after[0])[1])
            before, after = before[1], after[1]
            plays[name, seed] = after
            own, learned, gain = bench.compare(before, after)
            start.append(own)
            trained.append(learned)
            gains.append(gain)
            if name != first:
                leads.append(bench.compare(plays[first, seed], after)[2])
            spent.append(episodes)
            steps.append(taken)
            last = [row["reward/mean"] for row in rows(run)[max(0, taken - LAST):taken]]
            reward.append(statistics.fmean(last))
            minutes.append(float((run / "minutes").read_text()))
        gain, lead = interval(gains), interval(leads) if leads else None
        mean = statistics.fmean
        print(f"| {name} | {mean(spent):.0f} | {mean(steps):.0f} | {mean(reward):.3f} | {mean(greedy):.3f} | {mean(start):.3f} |"
              f" {mean(trained):.3f} | {cell(gain)} | {cell(lead) if lead else ''} | {mean(minutes):.1f} |", flush=True)
        figures[name] = {"episodes": spent, "steps": steps, "reward": reward, "greedy": greedy, "start": start, "trained": trained,
                         "gain": gain, "lead": lead, "minutes": minutes}
    if len(figures) > 1:
        print(f"\nBy intervals that are not adjusted for the number of methods; {told(figures, first)}.")
    fair = held(figures, given.budget)
    print(json.dumps({"bench": "methods", "held": fair, "seeds": given.seeds, "steps": given.steps, "figures": figures}))
    sys.exit(0 if fair else 1)


if __name__ == "__main__":
    main()
