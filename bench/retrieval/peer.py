"""One other search engine in a process of its own, driven as `bm25_bench` is.

    peer.py ENGINE INDEX CORPUS QUERIES K

ENGINE: lucene, bm25s-numpy, bm25s-numba, rank-bm25. CORPUS and QUERIES are rows with texts for Lucene, lists of terms for the others.
Prints one JSON line when ready, then one for every line read: `single`, `batch`, `parallel` (bm25s), `stored` (Lucene) and `scores` (both).
CPU time is that of the whole process, its Java or numba threads included.
"""

import json
import os
import sys
import time
from pathlib import Path

RANK_BM25_QUERIES = 10


def lines(path):
    with open(path, encoding="utf-8") as rows:
        return [json.loads(row) for row in rows]


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

        self.k, self.backend = k, backend
        self.model = bm25s.BM25.load(str(index), load_vocab=True)
        self.model.backend = backend

    def search(self, query):
        return self.batch([query], 0)

    def batch(self, queries, threads):
        options = {"backend_selection": "numba" if self.backend == "numba" else "numpy"}
        return self.model.retrieve(queries, k=self.k, n_threads=threads, show_progress=False, **options)

    def scores(self, queries):
        # Passages without a word of the query fill the list up.
        found = self.batch(queries, 1).scores
        return {"sum": float(found.sum(dtype="float64")), "hits": int((found > 0).sum())}


class RankBm25:
    def __init__(self, corpus, k):
        import rank_bm25

        self.numpy, self.k = __import__("numpy"), k
        self.model = rank_bm25.BM25Okapi(lines(corpus), k1=0.9, b=0.4)

    def search(self, query):
        scores = self.model.get_scores(query)
        return self.numpy.argpartition(scores, -self.k)[-self.k :]


def build_bm25s(corpus, out):
    import bm25s

    model = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    model.index(lines(corpus), show_progress=False)
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
    # bm25s takes no query without a term; a space is none of any passage.
    queries = [row["text"] if name == "lucene" else row or [" "] for row in lines(queries)]
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
