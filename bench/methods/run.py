"""Trains the methods of methods.txt with as many episodes each and prints the table of bench/methods/run.sh."""

import argparse
import json
import shlex
import shutil
import statistics
import sys
import tomllib
from pathlib import Path

from harness.side_by_side import ONE_THREAD, Programs

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
# Steps at the end of a run whose reward is averaged.
LAST = 10
# Sampled episodes of each held-out question: a small push turns greedy ones as a whole.
SAMPLES = 4
# Exact match on the development questions to which questions are counted, unless another is asked for.
LEVEL = 0.5
# Evaluations on the development questions in the course of a run.
LOOKS = 20
# Means over seeds in the table, with their forms.
COLUMNS = {"episodes": ".0f", "steps": ".0f", "reward": ".3f", "searches": ".2f", "greedy": ".3f", "start": ".3f", "trained": ".3f"}
# Methods that learn from recorded episodes of the start, as many as the others play; of equal texts one is recorded.
OFFLINE = {"a_lol", "lipo"}


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
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Bench(Programs):
    def __init__(self, given):
        self.given, self.scratch = given, Path(given.scratch)
        super().__init__(given.forage, self.scratch / "commands.log")

    def world(self, seed):
        return [*shlex.split(self.given.task), *ONE_THREAD, "--set", f"seed={seed}", "--set", f"data.world.seed={1000000 + seed}"]

    def claim(self):
        """Refuses a scratch folder of another config or task, whose episodes are of other questions."""
        task, kept = shlex.split(self.given.task), self.scratch / "task.json"
        what = {"config": Path(self.given.config).read_text(), "task": task}
        if kept.exists() and json.loads(kept.read_text()) != what:
            sys.exit(f"{self.scratch} is of another config or TASK; give another SCRATCH_FOLDER, or remove it")
        kept.write_text(json.dumps(what))

    def episodes(self, policy, seed, name):
        """Greedy and sampled episodes of a policy, None for the config's own, on the held-out questions."""
        greedy, sampled = (self.scratch / f"{name}-{seed}{kind}.jsonl" for kind in ("", ".sampled"))
        if not (greedy.exists() and sampled.exists()):
            checkpoint = ["--set", f"policy.checkpoint={policy}"] if policy else []
            self.forage("eval", self.given.config, *self.world(seed), *checkpoint, "--samples", SAMPLES, "--out", greedy, *again(greedy))
        return greedy, sampled

    def recorded(self, seed):
        """Episodes of the start on as many training questions as a run asks."""
        file = self.scratch / f"recorded-{seed}.jsonl"
        if not file.exists():
            kept = ["--keep", "all-correct", "--min-reward", -1]
            self.forage("collect", self.given.config, *self.world(seed), "--samples", self.given.group, *kept,
                        "--questions", self.given.budget // self.given.group, "--out", file, *again(file))
        return file

    def train(self, name, arguments, seed):
        """The steps of a method within the budget of episodes, the policy that they come to, the questions that each of them has asked, and
        the episodes of a question."""
        run = self.scratch / f"{name}-{seed}"
        refills = any("grpo.refills" in argument for argument in arguments)
        kept = run / "arguments"
        if not kept.exists():
            shutil.rmtree(run, ignore_errors=True)
            # Which checkpoint a run that plays more than it plans is taken at shows when it is done. Steps have five times as many episodes
            # at most (`refills = 4`), so that two checkpoints are a tenth of the budget apart at most.
            every, keep = (max(1, self.given.steps // 50), self.given.steps) if refills else (0, 1)
            options = {"grpo.steps": self.given.steps, "grpo.checkpoint_every": every, "grpo.keep_checkpoints": keep,
                       "grpo.sentinel.stop": "false",
                       "grpo.evaluate_every": 0 if name in OFFLINE else max(1, self.given.steps // LOOKS)}
            options = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
            options += ["--rollouts", self.recorded(seed)] if name in OFFLINE else []
            self.forage("train", self.given.config, *self.world(seed), *options, *arguments, "--out", run, log=f"{run}.log")
            kept.write_text(shlex.join(arguments))
        grpo = tomllib.loads((run / "config.toml").read_text())["grpo"]
        if grpo["steps"] != self.given.steps:
            sys.exit(f"{run} was trained for {grpo['steps']} steps and not for {self.given.steps}; give another SCRATCH_FOLDER, or remove it")
        if kept.read_text() != shlex.join(arguments):
            sys.exit(f"{run} was trained with other arguments than methods.txt has; give another SCRATCH_FOLDER, or remove it")
        replayed = grpo.get("replay", {}).get("share", 0) * grpo["prompts_per_step"]
        planned = grpo["prompts_per_step"] - round(replayed)
        questions, group = [planned + row.get("curriculum/refilled_groups", 0) for row in rows(run)], grpo["group_size"]
        within, taken = self.given.budget, 0
        saved = {int(folder.name.removeprefix("step-")): folder for folder in (run / "checkpoints").glob("step-*")}
        for step in sorted(saved):
            if taken == 0 or sum(questions[:step]) * group <= within:
                taken = step
        for step, folder in saved.items():
            if step != taken:
                shutil.rmtree(folder)
        return rows(run)[:taken], saved[taken] / "model", questions[:taken], group

    def measured(self, name, arguments, seed):
        """What a method comes to under a seed, its lead over another aside."""
        steps, policy, questions, group = self.train(name, arguments, seed)
        before, after = self.episodes(None, seed, "start"), self.episodes(policy, seed, name)
        metrics = self.metrics(before[0], after[0])
        greedy, searches = (metrics.get(name, {}).get("b") for name in ("em", "searches"))
        start, trained, gain = self.compare(before[1], after[1])
        rewards = [row["reward/mean"] for row in steps[-LAST:] if "reward/mean" in row]
        return {"episodes": sum(questions) * group, "steps": len(steps), "asked": asked(steps, questions, self.given.level),
                "reward": statistics.fmean(rewards) if rewards else None,
                "searches": searches, "greedy": greedy, "start": start, "trained": trained, "gain": gain, "minutes": minutes(steps)}

    def ahead(self, first, name, seed):
        """The lead of a method over the first, sampled, with its interval over questions."""
        first, own = (self.scratch / f"{method}-{seed}.sampled.jsonl" for method in (first, name))
        return self.compare(first, own)[2]

    def metrics(self, before, after):
        """The metrics of two policies. Ends the script where episodes have no exact match."""
        metrics = json.loads(self.forage("compare", before, after, "--json"))["metrics"]
        if not metrics.get("em"):
            sys.exit(f"episodes of {self.given.config} have no exact match ({', '.join(metrics)}); name one whose episodes end in answers")
        return metrics

    def compare(self, before, after):
        """Difference of exact match, with its interval over questions."""
        found = self.metrics(before, after)["em"]
        return found["a"], found["b"], found["difference"]

    def budget(self):
        """Episodes of a run, and those of a question."""
        text = self.forage("train", self.given.config, *shlex.split(self.given.task), "--dry-run")
        grpo = tomllib.loads(text)["grpo"]
        return self.given.steps * grpo["prompts_per_step"] * grpo["group_size"], grpo["group_size"]


def asked(steps, questions, level):
    """Questions that a run asked until exact match on the development questions was first at the level; `None` where it never was."""
    for count, row in enumerate(steps, 1):
        if row.get("val/em", 0) >= level:
            return int(sum(questions[:count]))
    return None


def reached(counts):
    """The mean over the seeds that came to the level, and how many they are where not all did."""
    known = [count for count in counts if count is not None]
    if not known:
        return "–"
    return f"{statistics.fmean(known):.0f}" + (f" ({len(known)} of {len(counts)})" if len(known) < len(counts) else "")


def minutes(steps):
    """The wall time of steps: play, updates, and the wait for episodes that are played ahead."""
    return sum(row.get(f"time/{part}_s") or 0 for row in steps for part in ("rollout", "update", "wait")) / 60


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
    parser.add_argument("--level", type=float, default=LEVEL)
    parser.add_argument("--task", default="")
    parser.add_argument("--methods", nargs="*", default=[])
    given = parser.parse_args()
    bench = Bench(given)
    bench.claim()
    given.budget, given.group = bench.budget()
    seeds = range(1, given.seeds + 1)
    chosen = methods(given.methods)
    first = next(iter(chosen))
    kind = "seeds" if given.seeds > 1 else "questions"
    print(f"{given.steps} steps, {given.seeds} seeds, {given.budget} episodes a run; 95 % intervals over {kind}; exact match, greedy and "
          f"of {SAMPLES} samples a question; searches are of a greedy episode; gains and leads are of the samples; questions are those asked "
          f"until greedy exact match on the development questions was first {given.level:g}, looked at {LOOKS} times")
    starts = bench.side_by_side(lambda seed, name: bench.episodes(None, seed, name), [(seed, "start") for seed in seeds])
    if OFFLINE & set(chosen):
        # Once for both of them, which would be side by side.
        bench.side_by_side(lambda seed, _: bench.recorded(seed), [(seed, "recorded") for seed in seeds])
    # Before hours of training: whether there is what policies are compared by.
    bench.compare(*[starts[1, "start"][0]] * 2)
    jobs = [(name, seed) for name in chosen for seed in seeds]
    found = bench.side_by_side(lambda name, seed: bench.measured(name, chosen[name], seed), jobs)
    leads = bench.side_by_side(lambda name, seed: bench.ahead(first, name, seed), [job for job in jobs if job[0] != first])
    figures, mean = {}, statistics.fmean
    print(f"| method | episodes | steps | reward in training, last {LAST} | searches | greedy | start | trained | gain | against {first} |"
          f" questions to {given.level:g} | minutes |")
    print("|" + "---|" * 12)
    for name in chosen:
        runs = [found[name, seed] for seed in seeds]
        each = {part: [run[part] for run in runs] for part in runs[0]}
        each["gain"] = interval(each["gain"])
        each["lead"] = interval([leads[name, seed] for seed in seeds]) if name != first else None
        shown = ["" if None in each[part] else format(mean(each[part]), form) for part, form in COLUMNS.items()]
        print(f"| {name} | {' | '.join(shown)} | {cell(each['gain'])} | {cell(each['lead']) if each['lead'] else ''} |"
              f" {reached(each['asked'])} | {mean(each['minutes']):.1f} |")
        figures[name] = each
    if len(figures) > 1:
        print(f"\nBy intervals that are not adjusted for the number of methods; {told(figures, first)}.")
    fair = held(figures, given.budget)
    print(json.dumps({"bench": "methods", "held": fair, "seeds": given.seeds, "steps": given.steps, "figures": figures}))
    sys.exit(0 if fair else 1)


if __name__ == "__main__":
    main()
