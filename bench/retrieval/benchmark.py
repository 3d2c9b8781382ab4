"""BM25 beside Lucene, bm25s and rank_bm25 over the same passages: building, disk, memory, CPU time and latency of a query.

Lucene is a bare `IndexSearcher` with Anserini's analysis, called through JPype at under a microsecond a call. Ids: both sides give the
numbers and scores of the best k. Stored: both also read the documents they store, ours as title and text, Lucene's as the JSON line
that was indexed. bm25s and rank_bm25 are given the terms of our analysis, of passages and of queries, ready-made: neither their building
nor their queries have analysis in them, as ours and Lucene's do.
"""

import shutil

from harness.corpora import halves, index_command, lucene_index, terms, windows
from harness.declare import Aim, Benchmark, Cell, Equality, Figure, ROOT, Table
from harness.peers import Anserini, Venv
from harness.sides import Driven, Function, timed
from harness.workspace import digest

ANSERINI = Anserini()
BM25S = Venv("bm25s==0.3.16", "rank-bm25==0.2.2", "numba==0.68.1", "numpy==2.4.6", "scipy==1.17.1")
PEER = ROOT / "bench/retrieval/peer.py"

# Engine, and the ways it is asked. rank_bm25 is asked ten queries.
MODES = {
    "forage": ("single", "stored", "batch", "parallel"),
    "lucene": ("single", "stored"),
    "bm25s-numba": ("batch", "parallel"),
    "bm25s-numpy": ("single",),
    "rank-bm25": ("single",),
}
NAMES = {
    "forage": "forage",
    "lucene": "Lucene",
    "bm25s-numba": "bm25s with numba",
    "bm25s-numpy": "bm25s, NumPy",
    "rank-bm25": "rank_bm25 (10 queries)",
}
WORDS = {
    "single": "one by one, ids",
    "stored": "one by one, stored passages",
    "batch": "all at once, one thread",
    "parallel": "all at once, all cores",
}
BUILDS = (("forage", 1), ("lucene", 1), ("bm25s", 1), ("forage", 2), ("lucene", 2))
# Those that say what they found.
SCORED = ("forage", "lucene", "bm25s-numba")
TAILS = ("p50_us", "p95_us", "p99_us")


def build(work, name, threads, command, out):
    """Builds an index on so many cores."""

    def measure():
        shutil.rmtree(out, ignore_errors=True)
        cores = "0" if threads == 1 else f"0-{threads - 1}"
        seen = timed(["taskset", "-c", cores, *command], out.with_suffix(".log"))
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        return seen | {"disk_mb": size / 1e6}

    return Function(f"build/{name}-{threads}", measure)


def sides(work):
    k = work.parameters["k"]
    folder = windows(work, work.parameters["passages"])
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    bm25s, python = BM25S.python(work.home), ANSERINI.venv.python(work.home)
    bench = work.example("forage-retriever", "bm25_bench")
    ours = lambda out: [work.forage, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", out]
    split = halves(work, corpus)
    their_corpus, their_queries = terms(work, "corpus", corpus, "contents"), terms(work, "queries", queries, "text")
    commands = {
        "forage": lambda out, threads: ours(out),
        "lucene": lambda out, threads: index_command(work, ANSERINI, split, out, threads),
        "bm25s": lambda out, threads: [bm25s, PEER, "build-bm25s", out, their_corpus, "-", k],
    }
    builds = []
    for name, threads in BUILDS:
        out = work.scratch / f"{name}-{threads}"
        builds.append(build(work, name, threads, commands[name](out, threads), out))
    work.run(*ours(work.scratch / "forage"))
    key = {"corpus": digest(their_corpus), "peers": BM25S.versions, "maker": digest(PEER)}
    index = work.input("bm25s", key, lambda out: work.run(bm25s, PEER, "build-bm25s", out / "index", their_corpus, "-", k)) / "index"
    lucene = lucene_index(work, ANSERINI, [corpus])
    peer = lambda name, index: [bm25s, PEER, name, index, their_corpus, their_queries, k]
    started = {
        "forage": ([bench, work.scratch / "forage", queries, k], None),
        "lucene": ([python, PEER, "lucene", lucene, corpus, queries, k], ANSERINI.environment(work.home)),
        "bm25s-numba": (peer("bm25s-numba", index), None),
        "bm25s-numpy": (peer("bm25s-numpy", index), None),
        "rank-bm25": (peer("rank-bm25", "-"), None),
    }
    engines = []
    for name, (command, env) in started.items():
        asked = {mode: mode for mode in MODES[name]} | ({"scores": "scores"} if name in SCORED else {})
        # Caches and compilers get three passes of every mode first, which is when Java's times settle; rank_bm25 has neither.
        warm = () if name == "rank-bm25" else MODES[name] * 3
        engines.append(Driven(name, command, asked, warm, env))
    return [builds, engines]


def engine_figures():
    for engine, modes in MODES.items():
        yield Figure(f"{engine}/ready/open_us", "µs", "lower")
        for mode in modes:
            tails = TAILS if mode in ("single", "stored") else ()
            for name in ("cpu_us", "wall_us", *tails):
                yield Figure(f"{engine}/{mode}/{name}", "µs per query", "lower")
            yield Figure(f"{engine}/{mode}/rss_kb", "KiB", "lower")


def ratio(name, over, under, better):
    return Figure(name, "ratio", better, lambda found: found[over] / found[under])


def engine_row(engine, mode):
    cell = lambda name, times=1.0: Cell(f"{engine}/{mode}/{name}", 0, times)
    tails = [cell(name) if mode in ("single", "stored") else "" for name in TAILS]
    return [NAMES[engine], WORDS[mode], cell("cpu_us"), *tails, cell("rss_kb", 1 / 1024)]


def build_row(name, threads):
    cell = lambda figure, decimals=0: Cell(f"build/{name}-{threads}/{figure}", decimals)
    return [{"lucene": "Lucene"}.get(name, name), str(threads), cell("wall_s", 1), cell("cpu_s", 1), cell("peak_mb"), cell("disk_mb")]


BENCHMARK = Benchmark(
    title="BM25 beside Lucene, bm25s and rank_bm25",
    sides=sides,
    parameters={"passages": 220_000, "k": 10},
    rehearsal={"passages": 5_000},
    peers=(ANSERINI, BM25S),
    figures=[
        *engine_figures(),
        *(
            Figure(f"build/{name}-{threads}/{figure}", unit, "lower")
            for name, threads in BUILDS
            for figure, unit in (("wall_s", "s"), ("cpu_s", "s"), ("peak_mb", "MiB"), ("disk_mb", "MB"))
        ),
        ratio("batch_cpu_over_bm25s", "forage/batch/cpu_us", "bm25s-numba/batch/cpu_us", "lower"),
        ratio("lucene_ids_cpu_over_forage", "lucene/single/cpu_us", "forage/single/cpu_us", "higher"),
        ratio("lucene_ids_p50_over_forage", "lucene/single/p50_us", "forage/single/p50_us", "higher"),
        ratio("lucene_stored_cpu_over_forage", "lucene/stored/cpu_us", "forage/stored/cpu_us", "higher"),
        ratio("lucene_stored_p50_over_forage", "lucene/stored/p50_us", "forage/stored/p50_us", "higher"),
    ],
    aims=[
        Aim("batch_cpu_over_bm25s", "<=", 1.0, "CPU of a query in a batch over that of bm25s with numba"),
        Aim("lucene_ids_cpu_over_forage", ">=", 3.0, "ids: Lucene's CPU over ours"),
        Aim("lucene_ids_p50_over_forage", ">=", 3.0, "ids: Lucene's median latency over ours"),
        Aim("lucene_stored_cpu_over_forage", ">=", 3.0, "stored passages: Lucene's CPU over ours"),
        Aim("lucene_stored_p50_over_forage", ">=", 3.0, "stored passages: Lucene's median latency over ours"),
    ],
    equalities=[
        Equality("the scores of all hits have the same sum in Lucene", ["forage/scores/sum", "lucene/scores/sum"], tolerance=1e-6),
        Equality(
            "nearly the same sum in bm25s, which does not round lengths as Lucene does",
            ["forage/scores/sum", "bm25s-numba/scores/sum"],
            tolerance=0.02,
        ),
        Equality("as many hits are found", [f"{engine}/scores/hits" for engine in SCORED]),
    ],
    tables=[
        Table(
            ("engine", "way", "CPU µs", "p50 µs", "p95 µs", "p99 µs", "resident MiB"),
            [engine_row(engine, mode) for engine, modes in MODES.items() for mode in modes],
        ),
        Table(
            ("built by", "cores", "wall s", "CPU s", "peak MiB", "disk MB"),
            [build_row(*made) for made in BUILDS],
        ),
    ],
)
