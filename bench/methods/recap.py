"""The curriculum `recap` beside uniform sampling where questions come from several data sets: recap.py FORAGE SCRATCH [SEEDS].

Questions of one, two and three hops of a generated world are the data sets. The quickstart's policy learns from as many episodes each way,
80 steps under each seed, whose world is its own, and is asked 500 held-out questions, four samples each. Prints exact match and searches by
data set, with the lead over uniform sampling and its 95 % interval over seeds, and a line of JSON. Files that are there are used again.
About twelve minutes on two cores. Needs bench on PYTHONPATH.
"""

import json
import re
import statistics
import sys
from pathlib import Path

from harness.declare import ROOT
from harness.side_by_side import ONE_THREAD, Programs
from methods.run import cell, interval

CURRICULA = {"uniform": [], "recap": ["--set", "grpo.curriculum={recap={window=10,temperature=1.0}}"]}
# Of the size of the quickstart's, with more questions than are asked.
WORLD = ["--pages", 2000, "--questions", 1500, "--hops", "0.4,0.4,0.2,0", "--paraphrase", 0.5, "--near-names", 0.3]
STEPS = ["--set", "grpo.steps=80", "--set", "grpo.evaluate_every=0", "--set", "grpo.checkpoint_every=0"]


class Bench(Programs):
    def __init__(self, forage, scratch):
        self.scratch = scratch
        super().__init__(forage, scratch / "commands.log")

    def task(self, seed):
        """A world whose questions name their hops as their data set, and the quickstart's config with its files."""
        world, config = self.scratch / f"world-{seed}", self.scratch / f"recap-{seed}.toml"
        if not config.exists():
            self.forage("world", *WORLD, "--seed", 1000000 + seed, "--out", world)
            for split in ("train", "dev", "test"):
                file = world / "search-r1" / f"{split}.jsonl"
                rows = [json.loads(row) for row in file.read_text().splitlines()]
                rows = [row | {"data_source": f"hops-{row['metadata']['hops']}"} for row in rows]
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            files = "".join(f'{split} = "{world}/search-r1/{split}.jsonl"\n' for split in ("train", "dev", "test"))
            text = (ROOT / "configs/quickstart.toml").read_text().replace("train_questions = 6000", "train_questions = 1500")
            text, found = re.subn(r"\[data\.world\].*?(?=^\[environment\])", f'[data.files]\ncorpus = "{world}/beir"\n{files}\n', text,
                                  flags=re.DOTALL | re.MULTILINE)
            assert found == 1, "configs/quickstart.toml has no world before its environment"
            config.write_text(text)
        return config

    def episodes(self, name, seed):
        """Greedy and sampled episodes of a trained policy on the held-out questions."""
        config, run = self.scratch / f"recap-{seed}.toml", self.scratch / f"{name}-{seed}"
        greedy, sampled = (self.scratch / f"{name}-{seed}{kind}.jsonl" for kind in ("", ".sampled"))
        given = [*ONE_THREAD, "--set", f"seed={seed}"]
        if not (run / "policy").exists():
            self.forage("train", config, *given, *STEPS, *CURRICULA[name], "--out", run, log=f"{run}.log")
        if not sampled.exists():
            self.forage("eval", config, *given, "--policy", run / "policy", "--samples", 4, "--out", greedy)
        return greedy, sampled

    def compared(self, seed, kind):
        """By data set, and over all questions: uniform sampling, `recap`, and the difference."""
        files = [self.scratch / f"{name}-{seed}{kind}.jsonl" for name in CURRICULA]
        found = json.loads(self.forage("compare", *files, "--json"))
        return {"all": found["metrics"]} | found["by_source"]


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    scratch = Path(sys.argv[2]).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    bench = Bench(Path(sys.argv[1]).resolve(), scratch)
    seeds = range(1, int(sys.argv[3] if len(sys.argv) == 4 else 3) + 1)
    bench.side_by_side(bench.task, [(seed,) for seed in seeds])
    bench.side_by_side(bench.episodes, [(name, seed) for seed in seeds for name in CURRICULA])
    figures = {}
    print("| questions | greedy EM, uniform | recap | sampled EM, uniform | recap | lead, sampled | searches, sampled, uniform | recap |")
    print("|" + "---|" * 8)
    greedy, sampled = ([bench.compared(seed, kind) for seed in seeds] for kind in ("", ".sampled"))
    for source in greedy[0]:
        means = [statistics.fmean(run[source][metric][side] for run in runs)
                 for runs, metric in ((greedy, "em"), (sampled, "em"), (sampled, "searches")) for side in "ab"]
        lead = interval([run[source]["em"]["difference"] for run in sampled])
        figures[source] = {"greedy": means[:2], "sampled": means[2:4], "searches": means[4:], "lead": lead}
        shown = [f"{value:.3f}" for value in means[:4]] + [cell(lead)] + [f"{value:.2f}" for value in means[4:]]
        print(f"| {source} | {' | '.join(shown)} |")
    print(json.dumps({"bench": "recap", "seeds": len(seeds), "figures": figures}))


if __name__ == "__main__":
    main()
