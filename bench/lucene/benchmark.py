"""Rankings beside Lucene's, 1,000 deep: the same JSON lines indexed by Anserini and by forage, every query of five corpora.

A pair is a query and a document it returns. Order and documents are those of Anserini's own run, scores Lucene's before Anserini
rounds them.
"""

import json

from harness.corpora import lucene_index, windows
from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Anserini
from harness.sides import Function, rows

ANSERINI = Anserini()
HERE = ROOT / "bench/lucene"
DEPTH = 1000
# Corpus, queries and judgements in the data folder; the windows are made from it.
CORPORA = {
    "scifact": ("SciFact", "scifact", "queries.test.jsonl", "qrels.test.trec"),
    "hotpotqa": ("HotpotQA", "multihop/hotpotqa", "questions.jsonl", "qrels.trec"),
    "2wikimultihopqa": ("2WikiMultihopQA", "multihop/2wikimultihopqa", "questions.jsonl", "qrels.trec"),
    "musique": ("MuSiQue", "multihop/musique", "questions.jsonl", "qrels.trec"),
    "windows": ("windows", None, None, None),
}
# Anserini's published BM25 flat run of BEIR's SciFact.
SCIFACT_NDCG = 0.6789


def compared(work, name):
    python, env = ANSERINI.venv.python(work.home), ANSERINI.environment(work.home)
    at = work.scratch / name
    at.mkdir()
    if name == "windows":
        made = windows(work, work.parameters["passages"])
        corpus, queries, qrels = made / "corpus.jsonl", made / "queries.jsonl", made / "qrels.tsv"
    else:
        _, folder, asked, judged = CORPORA[name]
        folder = work.data / folder
        work.run(python, HERE / "convert.py", folder / "corpus.jsonl", folder / asked, at)
        corpus, queries, qrels = at / "corpus.jsonl", at / "queries.jsonl", folder / judged
    work.run(python, HERE / "convert.py", "--topics", queries, at)
    lucene = lucene_index(work, ANSERINI, [corpus])

    def measure():
        topics, index, theirs, ours = at / "topics.tsv", at / "forage", at / "lucene.run", at / "forage.run"
        search = ["-index", lucene, "-topics", topics, "-topicReader", "TsvString", "-output", theirs, "-hits", DEPTH, "-threads", 1]
        scorer = ["-bm25", "-bm25.k1", 0.9, "-bm25.b", 0.4]
        work.run(*ANSERINI.java(work.home), "io.anserini.search.SearchCollection", *search, *scorer)
        work.run(work.forage, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", index)
        judge = ["--queries", queries, "--qrels", qrels, "-k", DEPTH, "--run", ours, "--json"]
        metrics = json.loads(work.run(work.forage, "eval", "retrieval", "--index", index, *judge))
        found = rows(work.run(python, HERE / "compare.py", lucene, topics, theirs, ours, DEPTH, env=env))[-1]
        passages = json.loads((index / "manifest.json").read_text())["counts"]["passages"]
        return found | {"passages": passages, "ndcg": metrics["ndcg@10"], "ndcg_rounded": round(metrics["ndcg@10"], 4)}

    return Function(name, measure)


def figures():
    for name in CORPORA:
        for figure in ("passages", "queries", "pairs", "documents_differ", "order_differs"):
            yield Figure(f"{name}/{figure}", "")
        yield Figure(f"{name}/score_difference", "relative", "lower")
        if name != "windows":
            yield Figure(f"{name}/ndcg", "nDCG@10", "higher")
    # Without pairs nothing can differ.
    yield Figure("fewest_pairs", "pairs", "higher", lambda found: min(found[f"{name}/pairs"] for name in CORPORA))


def every(figure):
    return [f"{name}/{figure}" for name in CORPORA]


BENCHMARK = Benchmark(
    title="Rankings and scores beside Lucene's, 1,000 deep",
    sides=lambda work: [[compared(work, name)] for name in CORPORA],
    parameters={"passages": 220_000},
    rehearsal={"passages": 5_000},
    peers=(ANSERINI,),
    rounds=1,
    exact=True,
    figures=list(figures()),
    aims=[
        *(Aim(f"{name}/score_difference", "<=", 1e-5, f"{CORPORA[name][0]}: largest relative difference of a score") for name in CORPORA),
        Aim("fewest_pairs", ">=", 10_000, "pairs that were compared, in the corpus with the fewest"),
    ],
    equalities=[
        Equality("the same documents", every("documents_differ"), value=0),
        Equality("in the same order, ties left out", every("order_differs"), value=0),
        Equality("scores are those of Anserini's ranking", every("anserini_differs"), value=0),
        Equality("SciFact's nDCG@10 is the published one", ["scifact/ndcg_rounded"], value=SCIFACT_NDCG),
    ],
    tables=[
        Table(
            ("corpus", "passages", "queries", "pairs", "documents that differ", "out of order", "largest score difference, relative"),
            [
                [
                    words[0],
                    *(Cell(f"{name}/{figure}") for figure in ("passages", "queries", "pairs", "documents_differ", "order_differs")),
                    Cell(f"{name}/score_difference", 0),
                ]
                for name, words in CORPORA.items()
            ],
        )
    ],
)
