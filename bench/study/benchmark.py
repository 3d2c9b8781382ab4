"""Studies by bench/study/run.sh: one config under ten seeds, beside twins and baselines, with every bar of a convincing study. This one is of
the quickstart; bench/study-code and bench/study-query declare those of its siblings."""

import json
import os

from harness.declare import ROOT, Aim, Benchmark, Cell, Figure, Table
from harness.sides import Command
from harness.workspace import digest
from study import bars

KINDS = ("greedy", "sampled")
ENDS = ("estimate", "low", "high")
COSTS = ("episodes", "seconds")
HOPS, PARTS = (1, 2, 3), ("search", "found", "read", "right")
KS = (1, 2, 4, 8, 16, 32, 64)
PASSED = ("start", "trained", *(f"difference/{end}" for end in ENDS))
UNITS = {"answer": "EM", "ranking": "NDCG@10"}
# Settings of a rehearsal, of about the sizes of configs/smoke.toml.
SMALL = ["data.train_questions=200", "data.dev_questions=10", "data.test_questions=30", "data.world.pages=300", "grpo.steps=4",
         "grpo.prompts_per_step=4", "grpo.group_size=4", "grpo.checkpoint_every=2", "grpo.evaluate_every=2", "evaluation.resamples=1000"]
# What only episodes that end in answers have.
ANSWER_BARS = ["start, greedy", "trained, greedy", "sampled gain", "trained, two hops", "low end of trained, three hops",
               "low end of searches against hops", "largest k of pass@k"]
CONDUCT = [f"hops/{name}/{count}/{part}" for name in ("start", "trained") for count in HOPS for part in PARTS]
CURVES = [f"pass/{k}/{part}" for k in KS for part in PASSED]


def names(outcome):
    """The bars of a study of such episodes."""
    leads = [*(f"low end of the lead over {name}" for name in bars.TWINS[outcome]), *(f"baseline {name}" for name in bars.BASELINES[outcome])]
    own = ANSWER_BARS if outcome == "answer" else ["low end of the lead over keywords"]
    return ["seeds", "minutes of a run", *leads, "late share of the rise", *own]


def policies(outcome):
    return ["trained", *bars.TWINS[outcome], *bars.BASELINES[outcome]]


def shares(outcome):
    """Figures of what policies do, which rankings do not have."""
    return CONDUCT + CURVES if outcome == "answer" else []


def read(outcome):
    """All figures in numbers; what was not trained has cost nothing. A rehearsal has fewer hops and samples, and zeros in their place."""
    lacking = [f"{kind}/{name}/{part}" for kind in KINDS for name in policies(outcome) for part in COSTS] + shares(outcome)

    def numbers(lines):
        line = lines[-1]
        found = {f"bar {name}": int(bar["met"]) for name, bar in line["figures"].items()}
        return dict.fromkeys(lacking, 0) | line["policies"] | (line["curves"] if outcome == "answer" else {}) | found

    return numbers


def figures(outcome):
    unit = UNITS[outcome]
    for kind in KINDS:
        for name in policies(outcome):
            at = f"study/{kind}/{name}"
            yield Figure(f"{at}/start", unit)
            yield Figure(f"{at}/end", unit, "higher")
            for part in ("gain",) if name == "trained" else ("gain", "lead"):
                for end in ENDS:
                    yield Figure(f"{at}/{part}/{end}", unit, "higher")
            if name != "trained":
                yield Figure(f"{at}/p", "p", "lower")
            yield Figure(f"{at}/episodes", "episodes")
            yield Figure(f"{at}/seconds", "s")
    for name in shares(outcome):
        yield Figure(f"study/{name}", "share", "higher")
    every = names(outcome)
    for name in every:
        yield Figure(f"study/bar {name}", "1 if met", "higher")
    yield Figure("bars met", "share", "higher", lambda found: sum(found[f"study/bar {name}"] for name in every) / len(every))


def row(kind, name):
    at = f"study/{kind}/{name}"
    ends = lambda part: [Cell(f"{at}/{part}/{end}", 3) for end in ENDS]
    lead = [""] * 4 if name == "trained" else [*ends("lead"), Cell(f"{at}/p", 3)]
    return [f"{name}, {kind}", Cell(f"{at}/start", 3), Cell(f"{at}/end", 3), *ends("gain"), *lead, *(Cell(f"{at}/{part}") for part in COSTS)]


def conduct(name, count):
    return [name, str(count), *(Cell(f"study/hops/{name}/{count}/{part}", 3) for part in PARTS)]


def tables(outcome):
    yield Table(
        ("policy, episodes", "start", "end", "gain", "95 %, low", "high", "trained ahead by", "low", "high", "p (Holm)",
         "episodes of training", "seconds of it"),
        [row(kind, name) for kind in KINDS for name in policies(outcome)],
    )
    if outcome == "answer":
        yield Table(
            ("policy, greedy", "hops", "searches", "finds, of those", "right, of those", "right"),
            [conduct(name, count) for name in ("start", "trained") for count in HOPS],
        )
        yield Table(
            ("k of pass@k", "start", "trained", "difference", "low", "high"),
            [[str(k), *(Cell(f"study/pass/{k}/{part}", 3) for part in PASSED)] for k in KS],
        )
    yield Table(("bar", "met"), [[name, Cell(f"study/bar {name}")] for name in names(outcome)])


def small(config):
    """A config with the arguments of `forage train` that make it a rehearsal."""
    return " --set ".join([config, *SMALL])


def study(title, config, outcome):
    """The study of a config whose episodes end in `outcome`."""
    twins, baselines = bars.TWINS[outcome], [name.removeprefix("script-") for name in bars.BASELINES[outcome]]

    def sides(work):
        parameters = work.parameters
        asked = f"--set evaluation.samples={parameters['samples']} --set evaluation.baselines={json.dumps(baselines, separators=(',', ':'))}"
        config, *settings = parameters["config"].split()
        # Kept, so that hours of training go on where they were stopped; another program has a folder of its own, and so have rehearsals.
        folder = "-".join([digest(work.forage)[:12], *(["small"] if settings else []), os.path.basename(config)])
        folder = work.home / "study" / folder
        command = [ROOT / "bench/study/run.sh", folder, config, parameters["seeds"], ",".join(twins), *settings]
        folder.parent.mkdir(parents=True, exist_ok=True)
        return [[Command("study", command, read(outcome), os.environ | {"FORAGE_BIN": str(work.forage), "STUDY": asked})]]

    return Benchmark(
        title=title,
        sides=sides,
        parameters={"config": config, "seeds": "1 2 3 4 5 6 7 8 9 10", "samples": 64},
        rehearsal={"config": small(config), "seeds": "1 2", "samples": 8},
        rounds=1,
        exact=True,
        figures=list(figures(outcome)),
        aims=[Aim("bars met", ">=", 1, "the share of the bars of a convincing study that are met")],
        tables=list(tables(outcome)),
    )


BENCHMARK = study("A gain beside twins and baselines, over ten seeds", "configs/quickstart.toml", "answer")
