"""One other search engine in a process of its own, driven as `bm25_bench` is.

    peer.py ENGINE INDEX CORPUS QUERIES K

ENGINE: lucene, bm25s-numpy, bm25s-numba, rank-bm25. Prints one JSON line when ready, then one for every line read: `single`
and `batch`, `parallel` (bm25s), `stored` and `scores` (Lucene). CPU time is that of the whole process, its Java or numba threads included.
"""

import json
import os
import sys
import time
from pathlib import Path

RANK_BM25_QUERIES = 10


def texts(corpus):
    with open(corpus, encoding="utf-8") as rows:
        return [json.loads(row)["contents"] for row in rows]


class Lucene:
    """A bare `IndexSearcher` through JPype: numbers and scores, or what is stored beside them."""

    def __init__(self, index, corpus, k):
        import anserini

        anserini.start()
        self.index, self.k = anserini.Index(index), k

    def search(self, query):
        return self.index.best(query, self.k)

    def stored(self, query):
        return self.index.stored(query, self.k)

    def scores(self, queries):
        found = [float(hit.score) for query in queries for hit in self.search(query).scoreDocs]
        return {"sum": sum(found), "hits": len(found)}


class Bm25s:
    def __init__(self, backend, index, k):
        import bm25s
        import Stemmer

        self.bm25s, self.stemmer, self.k, self.backend = bm25s, Stemmer.Stemmer("porter"), k, backend
        self.model = bm25s.BM25.load(str(index), load_vocab=True)
        self.model.backend = backend

    def search(self, query):
        return self.batch([query], 0)

    def batch(self, queries, threads):
        terms = self.bm25s.tokenize(queries, stopwords="en", stemmer=self.stemmer, show_progress=False)
        options = {"backend_selection": "numba" if self.backend == "numba" else "numpy"}
        return self.model.retrieve(terms, k=self.k, n_threads=threads, show_progress=False, **options)


class RankBm25:
    def __init__(self, corpus, k):
        import rank_bm25

        self.numpy, self.k = __import__("numpy"), k
        self.model = rank_bm25.BM25Okapi([text.lower().split() for text in texts(corpus)], k1=0.9, b=0.4)

    def search(self, query):
        scores = self.model.get_scores(query.lower().split())
        return self.numpy.argpartition(scores, -self.k)[-self.k :]


def build_bm25s(corpus, out):
    import bm25s
    import Stemmer

    terms = bm25s.tokenize(texts(corpus), stopwords="en", stemmer=Stemmer.Stemmer("porter"), show_progress=False)
    model = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    model.index(terms, show_progress=False)
    model.save(str(out))


def resident_kb():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def timed(queries, work):
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall_us": wall / len(queries) * 1e6, "cpu_us": cpu / len(queries) * 1e6, "rss_kb": resident_kb()}


def single(search, queries):
    walls = []

    def work():
        for query in queries:
            begun = time.perf_counter()
            search(query)
            walls.append(time.perf_counter() - begun)

    report = timed(queries, work)
    walls.sort()
    for name, share in (("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)):
        report[name] = walls[int((len(walls) - 1) * share)] * 1e6
    return report


def main():
    name, index, corpus, queries, k = sys.argv[1:]
    if name == "build-bm25s":
        return build_bm25s(corpus, index)
    with open(queries, encoding="utf-8") as rows:
        queries = [json.loads(row)["text"] for row in rows]
    k, begun = int(k), time.perf_counter()
    if name == "lucene":
        engine = Lucene(index, corpus, k)
    elif name == "rank-bm25":
        engine, queries = RankBm25(corpus, k), queries[:RANK_BM25_QUERIES]
    else:
        engine = Bm25s(name.removeprefix("bm25s-"), index, k)
    engine.search(queries[0])
    print(json.dumps({"open_us": (time.perf_counter() - begun) * 1e6, "rss_kb": resident_kb()}), flush=True)
    threads = len(os.sched_getaffinity(0))
    for line in sys.stdin:
        command = line.strip()
        if command in ("single", "stored"):
            report = single(engine.search if command == "single" else engine.stored, queries)
        elif command == "scores":
            report = engine.scores(queries)
        else:
            report = timed(queries, lambda: engine.batch(queries, 1 if command == "batch" else threads))
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
