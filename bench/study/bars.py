"""Prints what bench/study/run.sh found: arms, words, conduct by hops, and a line of JSON with every bar and whether all are met.

Usage: PYTHONPATH=bench python3 -m study.bars STUDY_JSON RUN_FOLDER...
"""

import json
import sys
from pathlib import Path

from methods.run import interval, minutes

SEEDS = 10
MINUTES = 10
# Greedy exact match of a start whose conduct is mediocre and not absent, and of trained policies in all and with two hops.
START = (0.15, 0.40)
TRAINED, TWO_HOPS = 0.75, 0.60
# Least gain of sampled episodes, share of the rise after the first quarter of the steps, and low end of the lead over a twin.
SAMPLED_GAIN, LATE, LEAD = 0.35, 0.5, 0.20
# The largest k of pass@k.
MOST = 64
TWINS = {"answer": ["random", "format_only", "any_search", "shuffled", "wrong"], "ranking": ["random", "any_search"]}
# By fine-tuning, with as many episodes as the run and with as many seconds.
TAUGHT = ["rejection_sampling", "rejection_sampling_timed", "demonstrations_timed", "demonstrations"]
BASELINES = {
    "answer": ["forced_search", "best_of_8", "majority_of_8", *TAUGHT],
    "ranking": ["best_of_8", *TAUGHT, "script-keywords"],
}


def mean(values):
    return sum(values) / len(values) if values else None


def rows_of(file):
    with open(file) as lines:
        return [json.loads(line) for line in lines]


def conduct(records):
    """By hops: questions, and how many of them the policy searches, finds (of those it searches), reads (of those it finds), gets right."""
    rows = {}
    for record in records:
        score = record["episode"].get("score")
        if score is None:
            continue
        parts = score["parts"]
        searched = record["searches"] > 0
        found = searched and parts.get("retrieval", 0) > 0
        rows.setdefault(record["episode"]["task"]["hops"], []).append((searched, found, parts.get("em", 0) > 0))
    return {
        hops: {
            "questions": len(seen),
            "search": mean([searched for searched, _, _ in seen]),
            "found": mean([found for searched, found, _ in seen if searched]),
            "read": mean([right for _, found, right in seen if found]),
            "right": mean([right for _, _, right in seen]),
        }
        for hops, seen in sorted(rows.items())
    }


def by_hops(runs, name):
    """The conduct of a policy on each run."""
    return [conduct(rows_of(Path(run) / "evaluation" / f"{name}.jsonl")) for run in runs]


def bars(found, hops, times):
    """Each bar with its figure and whether it is met; a missing figure meets none."""
    greedy, sampled = found["greedy"], found["sampled"]
    outcome = greedy["outcome"]
    trained, twins = greedy["arms"][0], {arm["name"]: arm for arm in greedy["arms"][1:]}
    baselines = {arm["name"]: arm for arm in greedy["baselines"]} if "baselines" in greedy else {}
    seeds = trained["seeds"]
    found_bars = {}

    def bar(name, value, met):
        found_bars[name] = {"value": value, "met": value is not None and bool(met(value))}

    bar("seeds", len(seeds), lambda count: count >= SEEDS)
    bar("minutes of a run", max(times, default=None), lambda most: most <= MINUTES)
    for name in TWINS[outcome]:
        low = twins[name]["lead"]["difference"]["low"] if name in twins else None
        bar(f"low end of the lead over {name}", low, lambda low: low >= LEAD)
    for name in BASELINES[outcome]:
        bar(f"baseline {name}", baselines[name]["gain"]["estimate"] if name in baselines else None, lambda _: True)
    late = greedy.get("late_gain", {})
    shares = [share["estimate"] for share in late.values()]
    bar("late share of the rise", mean(shares), lambda share: share >= LATE and len(late) == len(seeds))
    gain = sampled["arms"][0]["gain"]["estimate"] if sampled else None
    if outcome == "ranking":
        keywords = baselines.get("script-keywords")
        bar("low end of the lead over keywords", keywords and keywords["lead"]["difference"]["low"], lambda low: low > 0)
        return found_bars
    bar("start, greedy", mean([seed["start"] for seed in seeds]), lambda start: START[0] <= start <= START[1])
    bar("trained, greedy", mean([seed["score"] for seed in seeds]), lambda score: score >= TRAINED)
    bar("sampled gain", gain, lambda gain: gain >= SAMPLED_GAIN)
    right = {count: [run[count]["right"] for run in hops if count in run] for count in (2, 3)}
    bar("trained, two hops", mean(right[2]), lambda score: score >= TWO_HOPS)
    three = interval([{"estimate": score} for score in right[3]])[1] if len(right[3]) > 1 else None
    bar("low end of trained, three hops", three, lambda low: low > 0)
    effort = (greedy.get("effort") or {}).get("trained")
    bar("low end of searches against hops", effort and effort["low"], lambda low: low > 0)
    curve = ((sampled or {}).get("pass_at_k") or {}).get("b", [])
    bar("largest k of pass@k", curve[-1]["k"] if curve else None, lambda most: most >= MOST)
    return found_bars


def held(found_bars):
    return bool(found_bars) and all(bar["met"] for bar in found_bars.values())


def policies(found):
    """By kind of episodes and name, in numbers: what a policy scores, its gain, the lead of the trained one over it, and its training."""
    figures = {}
    for kind in ("greedy", "sampled"):
        for arm in found[kind]["arms"] + found[kind].get("baselines", []) if found[kind] else []:
            at, lead = f"{kind}/{arm['name']}", arm["lead"]
            figures[f"{at}/start"], figures[f"{at}/end"] = (mean([seed[part] for seed in arm["seeds"]]) for part in ("start", "score"))
            for name, interval in (("gain", arm["gain"]), ("lead", lead and lead["difference"])):
                figures |= {f"{at}/{name}/{end}": interval[end] for end in ("estimate", "low", "high")} if interval else {}
            figures |= {f"{at}/p": lead["p_adjusted"]} if lead else {}
            figures |= {f"{at}/{part}": value for part, value in arm.get("cost", {}).items()}
    return figures


def means(hops):
    """The conduct of several seeds as one: means of the seeds that have a value."""
    counts = sorted({count for run in hops for count in run})
    each = lambda count, part: mean([run[count][part] for run in hops if count in run and run[count][part] is not None])
    return {count: {part: each(count, part) for part in ("search", "found", "read", "right")} for count in counts}


def curves(found, hops):
    """By name, in numbers: the conduct of start and trained policy by hops, and their pass@k."""
    figures = {
        f"hops/{name}/{count}/{part}": value
        for name, runs in hops.items()
        for count, row in means(runs).items()
        for part, value in row.items()
        if value is not None
    }
    compared = (found["sampled"] or {}).get("pass_at_k") or {"a": [], "b": [], "differences": []}
    for start, trained, difference in zip(compared["a"], compared["b"], compared["differences"]):
        at = f"pass/{start['k']}"
        figures |= {f"{at}/start": start["value"]["estimate"], f"{at}/trained": trained["value"]["estimate"]}
        figures |= {f"{at}/difference/{end}": difference["value"][end] for end in ("estimate", "low", "high")}
    return figures


def cell(found):
    return f"{found['estimate']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"


def table(kind, study):
    print(f"\n| {kind} | start → end | gain | by seed | trained ahead by | p (Holm) | episodes | seconds |")
    print("|" + "---|" * 8)
    for arm in study["arms"] + study.get("baselines", []):
        start, end = (mean([seed[part] for seed in arm["seeds"]]) for part in ("start", "score"))
        gains = " ".join(f"{seed['gain']['estimate']:+.2f}" for seed in arm["seeds"])
        lead = arm["lead"]
        ahead = [cell(lead["difference"]), f"{lead['p_adjusted']:.3f}"] if lead else ["", ""]
        cost = arm.get("cost")
        taken = [f"{cost['episodes']:.0f}", f"{cost['seconds']:.0f}"] if cost else ["", ""]
        print(f"| {arm['name']} | {start:.3f} → {end:.3f} | {cell(arm['gain'])} | {gains} | {' | '.join(ahead + taken)} |")


def main():
    found, runs = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]
    for kind in ("greedy", "sampled"):
        if found[kind]:
            table(kind, found[kind])
    print()
    print("\n".join(found["words"]))
    hops = {name: by_hops(runs, name) for name in ("start", "trained")}
    if found["greedy"]["outcome"] == "answer":
        print("\n| greedy, by hops | hops | P(search) | P(found, search) | P(right, found) | right |")
        print("|" + "---|" * 6)
        shown = lambda value: "" if value is None else f"{value:.3f}"
        for name, runs_of in hops.items():
            for count, row in means(runs_of).items():
                print(f"| {name} | {count} | {' | '.join(map(shown, row.values()))} |")
    # Of a run without its twins.
    times = [minutes(rows_of(Path(run) / "metrics.jsonl")) for run in runs]
    found_bars = bars(found, hops["trained"], times)
    print()
    for name, bar in found_bars.items():
        value = "not there" if bar["value"] is None else f"{bar['value']:.3g}"
        print(f"{'met   ' if bar['met'] else 'missed'} {name}: {value}")
    line = {"bench": "study", "held": held(found_bars), "figures": found_bars, "policies": policies(found), "curves": curves(found, hops)}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
