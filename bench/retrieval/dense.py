"""Dense search side by side, in rounds, on one thread: dense.py WORK ROUNDS [NAME...]. Called by run.sh.

For the graphs and lists of the peers the search breadth (lists: those that are read) is the smallest of a doubling series with
recall@10 of at least .95. With names only the engines whose name begins with one of them run, and no ratios are made.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import numpy as np

RELEASE = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/release"

DIMENSION, K, RECALL, M, BREADTH = 384, 10, 0.95, 16, 100
ROWS_PER_CENTROID = 64  # of the sample that centroids are trained on, as ours
BREADTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
PROGRAM = f"{RELEASE}/examples/vector_bench"


class Peer:
    """A Python library's index. `search(queries, breadth)` gives rows; `breadths` is empty for exact ones."""

    def __init__(self, name, build, search, breadths=BREADTHS, batch=False):
        cpu, memory = time.process_time(), resident_kb()
        index = build()
        self.name, self.search, self.batch = name, lambda queries, breadth: search(index, queries, breadth), batch
        self.built = {"build_cpu_s": time.process_time() - cpu, "added_kb": resident_kb() - memory}
        self.breadths, self.rounds = breadths, []

    def settle(self, queries, truth):
        """Chooses the breadth."""
        self.breadth = None
        for self.breadth in self.breadths or (None,):
            self.recall = recall(self.search(queries, self.breadth), truth)
            if self.recall >= RECALL:
                return

    def round(self, queries):
        cpu = time.process_time()
        if self.batch:
            self.search(queries, self.breadth)
        else:
            for query in queries:
                self.search(query[None], self.breadth)
        self.rounds.append((time.process_time() - cpu) / len(queries) * 1e6)


class Forage:
    """One kind of forage index in a process of its own."""

    def __init__(self, kind, mode, work):
        self.name, self.mode, self.breadth, self.rounds = f"forage {kind}", mode, None, []
        self.found, self.batch = work / f"{kind}.u32", mode == "batch"
        command = [PROGRAM, kind, work / "vectors.f32", work / "queries.f32", str(DIMENSION), str(K), self.found]
        environment = os.environ | {"RAYON_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.built = json.loads(self.process.stdout.readline())

    def ask(self):
        self.process.stdin.write(self.mode + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def settle(self, queries, truth):
        self.ask()
        self.recall = recall(np.fromfile(self.found, dtype=np.uint32).reshape(len(queries), K), truth)

    def round(self, queries):
        self.rounds.append(self.ask()["cpu_us"])


def resident_kb():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


def recall(found, truth):
    return float(np.mean([len(set(row) & set(best)) / K for row, best in zip(found.tolist(), truth.tolist())]))


def peers(vectors):
    def faiss_flat():
        index = faiss.IndexFlatIP(DIMENSION)
        index.add(vectors)
        return index

    def faiss_hnsw():
        index = faiss.IndexHNSWFlat(DIMENSION, M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BREADTH
        index.add(vectors)
        return index

    def faiss_search(index, queries, breadth):
        if breadth:
            index.hnsw.efSearch = breadth
        return index.search(queries, K)[1]

    def faiss_lists():
        lists = round(4 * len(vectors) ** 0.5)
        index = faiss.index_factory(DIMENSION, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.max_points_per_centroid = ROWS_PER_CENTROID
        index.train(vectors)
        index.add(vectors)
        return index

    def faiss_lists_search(index, queries, breadth):
        index.nprobe = breadth
        return index.search(queries, K)[1]

    def hnsw():
        import hnswlib

        index = hnswlib.Index(space="ip", dim=DIMENSION)
        index.init_index(len(vectors), ef_construction=BREADTH, M=M)
        index.add_items(vectors, num_threads=1)
        return index

    def hnsw_search(index, queries, breadth):
        index.set_ef(breadth)
        return index.knn_query(queries, k=K, num_threads=1)[0]

    def usearch():
        from usearch.index import Index

        index = Index(ndim=DIMENSION, metric="ip", dtype="f32", connectivity=M, expansion_add=BREADTH)
        index.add(np.arange(len(vectors)), vectors, threads=1)
        return index

    def usearch_search(index, queries, breadth):
        index.expansion_search = breadth
        return np.asarray(index.search(queries, K, threads=1).keys).reshape(len(queries), K)

    faiss.omp_set_num_threads(1)
    yield "faiss Flat", lambda: Peer("faiss Flat", faiss_flat, faiss_search, ())
    yield "faiss Flat", lambda: Peer("faiss Flat", faiss_flat, faiss_search, (), batch=True)
    yield "faiss IVF-SQ8", lambda: Peer("faiss IVF-SQ8", faiss_lists, faiss_lists_search)
    yield "faiss HNSW", lambda: Peer("faiss HNSW", faiss_hnsw, faiss_search)
    yield "hnswlib", lambda: Peer("hnswlib", hnsw, hnsw_search)
    yield "usearch", lambda: Peer("usearch", usearch, usearch_search)


def main():
    work, rounds, names = Path(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:])
    vectors = np.fromfile(work / "vectors.f32", dtype=np.float32).reshape(-1, DIMENSION)
    queries = np.fromfile(work / "queries.f32", dtype=np.float32).reshape(-1, DIMENSION)
    truth = np.fromfile(work / "truth.u32", dtype=np.uint32).reshape(-1, K)
    plan = [(kind, mode) for kind in ("flat", "quantised", "ivf") for mode in ("single", "batch")] + [("graph", "single")]
    ours = [(f"forage {kind}", lambda kind=kind, mode=mode: Forage(kind, mode, work)) for kind, mode in plan]
    engines = [make() for name, make in [*ours, *peers(vectors)] if name.startswith(names or "")]
    for engine in engines:
        engine.settle(queries, truth)
    for _ in range(rounds):
        for engine in engines:
            engine.round(queries)
    figures = {}
    print(f"\n{f'{len(vectors)} x {DIMENSION}':18} {'mode':7} {'recall@10':>9} {'breadth':>7} {'CPU us':>8} {'build CPU s':>11} {'added MB':>8}")
    for engine in engines:
        cpu, mode = statistics.median(engine.rounds), "batch" if engine.batch else "single"
        built = engine.built
        figures[f"{engine.name} {mode}"] = {"recall": engine.recall, "cpu_us": cpu, "breadth": engine.breadth, **built}
        print(
            f"{engine.name:18} {mode:7} {engine.recall:9.4f} {engine.breadth or '':>7} {cpu:8.0f}"
            f" {built['build_cpu_s']:11.1f} {built['added_kb'] / 1024:8.0f} {built.get('parameters', '')}"
        )
    if names:
        return
    # One query at a time on both sides: the peers' graphs gain nothing from batches.
    ours = [one for name, one in figures.items() if name.startswith("forage") and name.endswith("single")]
    best = min(one["cpu_us"] for one in ours if one["recall"] >= RECALL)
    ratios = {f"best_over_{name}": best / figures[f"{name} single"]["cpu_us"] for name in ("faiss HNSW", "hnswlib")}
    found = {"ratios": ratios, "held": {"cpu": max(ratios.values()) <= 1.0}, "engines": figures}
    (work / "dense.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
