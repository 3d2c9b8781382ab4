"""Trains the conditions of conditions.txt and prints the table of bench/searchlm/conditions.sh."""

import argparse
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from harness.side_by_side import ONE_THREAD, Programs
from methods.run import again, interval
from searchlm.table import operators

CONFIG = "configs/searchlm-collapse.toml"
# The second reward with the groups that it was published with.
REWARD = ["reward.searchlm_v1=0", "reward.searchlm_v2=1", "grpo.group_size=8", "grpo.prompts_per_step=16", "grpo.sentinel.stop=false"]
# Steps between the shares that are shown, and steps at the end that a mean is of.
EVERY = LAST = 10
# Results that count: the first page.
DEPTH = 10
# Least share of held-out queries whose operators are of use, the published share of boolean queries.
USEFUL = 0.35
OPERATORS = re.compile(r'\b(?:AND|OR|NOT)\b|"|(?:^|\s)[+-]\w')


def conditions(asked):
    lines = Path(__file__).with_name("conditions.txt").read_text().splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    found = {name: arguments for name, *arguments in filter(None, found)}
    if unknown := set(asked) - set(found):
        sys.exit(f"conditions.txt has no {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return {name: arguments for name, arguments in found.items() if not asked or name in asked}


def precision(found, relevant):
    """Share of relevant passages on the first page, or among all where fewer were found."""
    page = found[:DEPTH]
    return sum(passage in relevant for passage in page) / len(page) if page else 0.0


def plain(query):
    """The words of a query alone."""
    return " ".join(word for word in re.findall(r"[\w']+", query) if word not in ("AND", "OR", "NOT"))


def written(record):
    """The query of an episode, what it found, what the question's keywords found, and what is relevant; `None` of an episode without one."""
    calls = [call for turn in record["episode"]["turns"] for call in turn["kind"].get("calls", [])]
    if not calls:
        return None
    task, call = record["episode"]["task"], calls[-1]
    relevant = {passage for passage, grade in task.get("qrels", {}).items() if grade > 0} or set(task["evidence"])
    return call["queries"][0], call.get("shown", []), call["payload"]["keywords_found"], relevant


def judged(records, search):
    """What the operators of a policy's queries add. `search` says what words alone find, first ten, of a list of queries."""
    queries = [written(record) for record in records]
    boolean = [query for query in queries if query and OPERATORS.search(query[0])]
    rows = []
    for (_, found, keywords, relevant), alone in zip(boolean, search([plain(query) for query, *_ in boolean])):
        with_operators = precision(found, relevant)
        rows.append({
            "operators": with_operators,
            "words": precision(alone, relevant),
            # As many of them as the operators left.
            "cut": precision(alone[: len(found)], relevant),
            "keywords": precision(keywords, relevant),
        })
    mean = lambda part: sum(row[part] for row in rows) / len(rows) if rows else None
    useful = sum(row["operators"] > row["words"] for row in rows) / len(queries) if queries else 0.0
    return {"share": len(boolean) / max(len(queries), 1), "useful": useful, **{part: mean(part) for part in ("operators", "words", "cut", "keywords")}}


def lead(ends, over):
    """The lead in precision of queries with operators over seeds, with its interval; `None` where some seed has no such query."""
    if any(end["operators"] is None for end in ends):
        return None
    # One seed has no interval here: its ends are the estimate.
    differences = [end["operators"] - end[over] for end in ends]
    return interval([{part: difference for part in ("estimate", "low", "high")} for difference in differences])


def kept(runs):
    """Whether operators that are of use are kept, and are ahead of keywords in precision with the whole interval."""
    ends = [run["end"] for run in runs]
    useful = sum(end["useful"] for end in ends) / len(ends)
    before = sum(run["start"]["useful"] for run in runs) / len(runs)
    leads = [lead(ends, over) for over in ("words", "keywords")]
    return len(runs) > 1 and useful >= max(before, USEFUL) and all(found and found[1] > 0 for found in leads)


def cell(found):
    return "" if found is None else f"{found[0]:+.2f} [{found[1]:+.2f}, {found[2]:+.2f}]"


def table(found):
    """By condition, the runs of its seeds, each with `start`, `end`, `ndcg` before and after, and the `course` of the share."""
    print("held-out queries, greedy; precision on the first page of ten, of queries with operators; leads with intervals over seeds")
    print("| condition | with operators, by steps | of use | precision | less the same words | less as many of them | less keywords | NDCG@10 | kept |")
    print("|" + "---|" * 9)
    for name, runs in found.items():
        mean = lambda values: sum(values) / len(values)
        course = " ".join(f"{mean(shares):.2f}" for shares in zip(*(run["course"] for run in runs)))
        ends = [run["end"] for run in runs]
        useful = " → ".join(f"{mean([run[part]['useful'] for run in runs]):.2f}" for part in ("start", "end"))
        known = [end["operators"] for end in ends if end["operators"] is not None]
        precise = f"{mean(known):.2f}" if known else ""
        leads = [cell(lead(ends, over)) for over in ("words", "cut", "keywords")]
        ndcg = " → ".join(f"{mean([run['ndcg'][place] for run in runs]):.2f}" for place in (0, 1))
        print(f"| {name} | {course} | {useful} | {precise} | {' | '.join(leads)} | {ndcg} | {'yes' if kept(runs) else 'no'} |")


class Bench(Programs):
    def __init__(self, forage, scratch):
        self.scratch = Path(scratch)
        super().__init__(forage, self.scratch / "conditions.log")

    def evaluated(self, policy, settings, file):
        """The greedy episodes of a policy on the held-out questions, without those that were lost to infrastructure faults."""
        if not file.exists():
            self.forage("eval", CONFIG, *ONE_THREAD, *settings, "--set", f"policy.checkpoint={policy}", "--out", file, *again(file))
        with open(file) as lines:
            return [record for record in map(json.loads, lines) if record["episode"]["score"] is not None]

    def search(self, index, queries):
        """Ids of the first page for each query, as words alone."""
        pages = [self.forage("search", index, "-k", DEPTH, "--json", "--", query) if query else "" for query in queries]
        return [[json.loads(line)["id"] for line in page.splitlines()] for page in pages]

    def run(self, name, arguments, seed):
        run = self.scratch / f"{name}-{seed}"
        world = [f"seed={seed}", f"data.world.seed={1000000 + seed}"]
        settings = [word for setting in world + REWARD for word in ("--set", setting)] + arguments
        start, what = self.scratch / "start/policy", run / "arguments"
        if run.exists() and (not what.exists() or what.read_text() != shlex.join(settings)):
            if (run / "policy").exists():
                sys.exit(f"{run} was trained with other arguments than conditions.txt has; give another SCRATCH_FOLDER, or remove it")
            shutil.rmtree(run)
        if not (run / "policy").exists():
            begun = ["--resume"] if (run / "metrics.jsonl").exists() else []
            run.mkdir(exist_ok=True)
            what.write_text(shlex.join(settings))
            policy = ["--set", f"policy.checkpoint={start}"]
            self.forage("train", CONFIG, *ONE_THREAD, *settings, *policy, "--out", run, *begun, log=f"{run}.log")
        files = {"start": run / "held-out-start.jsonl", "end": run / "held-out-end.jsonl"}
        records = {part: self.evaluated(policy, settings, files[part]) for part, policy in (("start", start), ("end", run / "policy"))}
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        shares = operators(steps)
        ndcg = lambda part: sum(record["episode"]["score"]["parts"]["ndcg"] for record in records[part])
        return {
            **{part: judged(records[part], lambda queries: self.search(run / "index", queries)) for part in records},
            "ndcg": [ndcg(part) / max(len(records[part]), 1) for part in ("start", "end")],
            "course": [*shares[::EVERY], sum(shares[-LAST:]) / len(shares[-LAST:])],
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forage")
    parser.add_argument("scratch")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", default="1 2 3")
    given = parser.parse_args()
    bench, seeds = Bench(given.forage, given.scratch), list(map(int, given.seeds.split()))
    chosen = conditions(given.names)
    runs = bench.side_by_side(lambda name, seed: bench.run(name, chosen[name], seed), [(name, seed) for name in chosen for seed in seeds])
    found = {name: [runs[name, seed] for seed in seeds] for name in chosen}
    table(found)
    # At least one condition keeps operators that are of use.
    print(json.dumps({"bench": "searchlm", "held": any(map(kept, found.values())), "figures": found}))


if __name__ == "__main__":
    main()
