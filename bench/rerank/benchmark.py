"""NDCG@10 before and after reranking the first hits of BM25: bounds, and a tiny policy before and after GRPO, as bench/rerank/run.sh makes
them. A cross-encoder, where one is named, has its row in what that prints alone.
"""

import sys

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.sides import Command
from rerank import run

# Rankers that need nothing from outside.
SHOWN = [ranker for ranker in run.RANKERS if ranker != "cross-encoder"]
PARTS = ("estimate", "low", "high")


def sides(work):
    sizes = [word for name in run.FULL for word in (f"--{name}", work.parameters[name])]
    given = ["--forage", work.forage, "--data", work.data, "--scratch", work.scratch, *sizes]
    read = lambda lines: lines[-1]["figures"]
    return [[Command("rerank", [sys.executable, ROOT / "bench/rerank/run.py", *given], read)]]


def figures():
    for corpus in run.CORPORA:
        at = f"rerank/{corpus}"
        for ranker in SHOWN:
            yield Figure(f"{at}/{ranker}", "nDCG@10", "higher")
        for difference in run.COMPARED:
            for part in PARTS:
                yield Figure(f"{at}/{difference}/{part}", "nDCG@10", "higher")
        for name, (high, low) in run.BOUNDS.items():
            less = lambda found, at=at, high=high, low=low: found[f"{at}/{high}"] - found[f"{at}/{low}"]
            yield Figure(f"{corpus}/{name}", "nDCG@10", "higher", less)


def figure(corpus, name):
    return f"{corpus}/{name}" if name in run.BOUNDS else f"rerank/{corpus}/{name}"


BENCHMARK = Benchmark(
    title="Reranking the first hits of BM25",
    sides=sides,
    parameters=run.FULL,
    rehearsal=run.REHEARSAL,
    rounds=1,
    exact=True,
    figures=list(figures()),
    aims=[
        Aim(figure(corpus, name), ">=", least, f"{words[0]}: {about}")
        for corpus, words in run.CORPORA.items()
        for name, (least, about) in run.AIMS.items()
    ],
    equalities=[
        *(
            Equality(
                f"{words[0]}: the first stage in the environment has the NDCG@10 of `forage eval retrieval`",
                [f"rerank/{corpus}/bm25", f"rerank/{corpus}/retrieval"],
                tolerance=1e-6,
            )
            for corpus, words in run.CORPORA.items()
        ),
        Equality("no infrastructure fault", [f"rerank/{corpus}/faults" for corpus in run.CORPORA], value=0),
    ],
    tables=[
        Table(
            ("ranker", *(f"{words[0]}, NDCG@10" for words in run.CORPORA.values())),
            [[run.RANKERS[ranker], *(Cell(f"rerank/{corpus}/{ranker}", 4) for corpus in run.CORPORA)] for ranker in SHOWN],
        ),
        Table(
            ("corpus", "difference in NDCG@10, one seed", "estimate", "95 % over questions, low", "high"),
            [
                [words[0], about, *(Cell(f"rerank/{corpus}/{name}/{part}", 4) for part in PARTS)]
                for corpus, words in run.CORPORA.items()
                for name, about in (
                    ("gain", "GRPO"),
                    ("twin", "GRPO on shuffled labels"),
                    ("lead", "GRPO over GRPO on shuffled labels"),
                    ("over", "the trained policy over BM25"),
                )
            ],
        ),
    ],
)
