"""Prints the table of bench/searchlm/run.sh from its scratch folder, then a line of JSON, `held` where the policies do what the published
ones did: under the first reward operators go in every seed and the sentinel says so, under the second at least a third is kept."""

import json
import sys
from pathlib import Path

LAST = 10
SEEDS = (1, 2, 3)
# Shares of queries with operators: what is left after a collapse, and what the published policy kept without one.
COLLAPSED, KEPT = 0.05, 0.35


def rows(path):
    return [json.loads(line) for line in open(path)]


def held_out(path):
    """Greedy NDCG@10 with its interval, and SearchLM's own."""
    metrics = json.load(open(path))["greedy"]["metrics"]
    true = metrics["ndcg"]
    return f"{true['estimate']:.2f} [{true['low']:.2f}, {true['high']:.2f}]", f"{metrics['ndcg_searchlm']['estimate']:.2f}"


def course(steps, name):
    """A metric at step 0, before any update, and its mean over the last steps; of those that have it, as steps without a query have none."""
    ends = ([step[name] for step in part if name in step] for part in (steps[:1], steps[-LAST:]))
    return " → ".join(f"{sum(end) / len(end):.2f}" if end else "–" for end in ends)


def operators(steps):
    """The share of queries with operators by step, 0 where no query was written."""
    return [step.get("query/operator_frac", 0.0) for step in steps]


def held(shares, alarms):
    """By the share of operators at the end and the kinds of alarms of each (reward, seed)."""
    collapsed = all(shares["v1", seed] <= COLLAPSED and "keyword_bag" in alarms["v1", seed] for seed in SEEDS)
    return collapsed and all(shares["v2", seed] >= KEPT for seed in SEEDS)


def main():
    scratch = sys.argv[1]
    runs = [(reward, seed) for reward in ("v1", "v2") for seed in SEEDS]
    if missing := [f"{reward}-{seed}" for reward, seed in runs if not Path(f"{scratch}/{reward}-{seed}/evaluation.json").exists()]:
        sys.exit(f"error: {scratch} lacks the evaluation of {', '.join(missing)}: run bench/searchlm/run.sh {scratch}")
    print(f"first step → mean of the last {LAST}; NDCG greedy on held-out questions, start → trained")
    print("| reward | seed | words | with operators | operators per query | phrases | tokens | groups without variance | NDCG@10 | SearchLM's | sentinel |")
    print("|" + "---|" * 11)
    shares, kinds = {}, {}
    for reward, seed in runs:
        run = f"{scratch}/{reward}-{seed}"
        steps = rows(f"{run}/metrics.jsonl")
        names = ("words_mean", "operator_frac", "complexity_mean", "phrase_frac")
        cells = [course(steps, f"query/{name}") for name in names]
        cells += [course(steps, "response/tokens_mean"), course(steps, "group/zero_std_frac")]
        before, after = held_out(f"{scratch}/start-{seed}.json"), held_out(f"{run}/evaluation.json")
        cells += [f"{start} → {end}" for start, end in zip(before, after)]
        try:
            raised = rows(f"{run}/alarms.jsonl")
        except FileNotFoundError:
            raised = []
        alarms = [f"`{alarm['kind']}` ({alarm['severity']}, step {alarm['step']})" for alarm in raised]
        print(f"| {reward} | {seed} | " + " | ".join(cells) + f" | {', '.join(alarms) or 'nothing'} |")
        last = operators(steps[-LAST:])
        shares[reward, seed], kinds[reward, seed] = sum(last) / len(last), sorted({alarm["kind"] for alarm in raised})
    print(f"\nshare of queries with operators every {LAST} steps:")
    for reward, seed in runs:
        steps = rows(f"{scratch}/{reward}-{seed}/metrics.jsonl")
        print(reward, seed, " ".join(f"{share:.2f}" for share in operators(steps[::LAST])))
    figures = {f"{reward}-{seed}": {"operators": shares[reward, seed], "alarms": kinds[reward, seed]} for reward, seed in runs}
    print(json.dumps({"bench": "searchlm", "held": held(shares, kinds), "figures": figures}))


if __name__ == "__main__":
    main()
