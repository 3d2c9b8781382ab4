"""BM25 from 200,000 to 21 million passages, beside Lucene: building, disk, memory, a query's CPU time and latency by k, warm and cold, hard
boolean queries, and updates while a server answers.

The passages are generated (`make.py`): they compress and prune otherwise than prose, on both sides. Lucene is a bare `IndexSearcher`, as in
`bench/retrieval`; both sides give numbers and scores. Cold is a new process, its files out of the page cache: Java has compiled nothing
yet. An index is built and timed once for each size, on all cores.
"""

import json
import os
import shutil
import sys
import threading
import time

from harness.corpora import index_command
from harness.declare import ROOT, Aim, BenchError, Benchmark, Cell, Curve, Equality, Figure, Growth, Table
from harness.peers import Anserini
from harness.servers import Load, Server, free_port
from harness.sides import Driven, Function, timed
from harness.workspace import digest

ANSERINI = Anserini()
MAKER, PEER = ROOT / "bench/growth-bm25/make.py", ROOT / "bench/retrieval/peer.py"
SIZES = {"2k": 2_000, "200k": 200_000, "1m": 1_000_000, "5m": 5_000_000, "21m": 21_000_000}
ENGINES = {"forage": "forage", "lucene": "Lucene"}
KS = (3, 10, 1000)
WAYS = ("warm", "cold")
# Words for the kinds of boolean queries that `make.py` writes.
KINDS = {"phrase": "phrase of the text", "rare": "rare phrase", "mixed": "AND, OR, NOT", "broad": "six words by OR"}
BUILT = {"wall_s": "s", "cpu_s": "s", "peak_mb": "MiB", "disk_mb": "MB"}
CONNECTIONS, ADDED = 8, 10_000


def passes(size):
    """How often all queries are asked before they are timed. Java's times settle within 12,000 of them where its compilers have little to
    count in each (bench/retrieval); in those of a large index they have several times as much, and minutes are dear there."""
    return 24 if SIZES[size] <= SIZES["1m"] else 8


def built(work, name, key, command):
    """An index that is made once, and what making it took."""

    def make(folder):
        seen = timed(command(folder / "index"), folder / "log")
        size = sum(file.stat().st_size for file in (folder / "index").rglob("*") if file.is_file())
        (folder / "built.json").write_text(json.dumps(seen | {"disk_mb": size / 1e6}))

    folder = work.input(name, key, make)
    return folder / "index", json.loads((folder / "built.json").read_text())


class Cold(Driven):
    """A program that starts while the files of its index are not in memory."""

    def __init__(self, index, *given):
        super().__init__(*given)
        self.index = index

    def measure(self):
        for path in self.index.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    # Pages that are not written yet would stay.
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return super().measure()


def linked(folder, out):
    """A copy of an index whose files, which never change, are the same ones where the disk is."""

    def link(source, place):
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)

    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out, copy_function=link)
    return out


def serve(work, index, port, *more):
    command = [work.forage, "serve", "retriever", index, "--addr", f"127.0.0.1:{port}", *more]
    return Server(command, port, work.scratch / f"serve-{port}.log")


def update(work, name, index, made):
    """A server under load, without and with passages being added to its index; then another one that opens what was added to."""
    load, seconds = Load(work, made / "queries.jsonl"), work.parameters["seconds"]

    def added(folder):
        command = [work.forage, "index", "add", folder, "--corpus", made / "more.jsonl", "--format", "search-r1"]
        return timed(command, work.scratch / "add.log")["wall_s"]

    def measure():
        grown, port = linked(index, work.scratch / "grown"), free_port()
        taken, failed, over = [], [], threading.Event()

        def add():
            try:
                taken.append(added(grown))
                # One alone is done before the load is: until then into copies, so that the index gets its passages once.
                while not over.is_set():
                    added(linked(index, work.scratch / "again"))
            except (BenchError, OSError) as error:
                failed.append(error)

        with serve(work, grown, port) as server:
            load(server, CONNECTIONS, min(2, seconds))
            quiet = load(server, CONNECTIONS, seconds)
            adding = threading.Thread(target=add)
            adding.start()
            try:
                busy = load(server, CONNECTIONS, seconds)
            finally:
                over.set()
                adding.join()
            resident, private = max(server.resident), max(server.private)
        if failed:
            raise failed[0]
        port = free_port()
        with serve(work, grown, port) as server:
            ready = server.ready_s
        passages = json.loads((grown / "manifest.json").read_text())["counts"]["passages"]
        seen = {"quiet_p99_ms": quiet["p99_ms"], "busy_p99_ms": busy["p99_ms"], "per_second": quiet["per_second"], "add_s": taken[0]}
        refused = quiet["other_statuses"] + busy["other_statuses"]
        return seen | {"ready_s": ready, "resident_mib": resident, "private_mib": private, "passages": passages, "refused": refused}

    return Function(name, measure)


def boolean(work, name, index, queries):
    """The latency of queries one at a time over HTTP, each at its best of three: what a query takes, not what the machine does beside."""
    kinds = json.loads(queries.read_text())

    def taken(server, query):
        begun = time.perf_counter()
        server.ask([query])
        return (time.perf_counter() - begun) * 1e3

    def measure():
        port, seen = free_port(), {}
        with serve(work, index, port, "--mode", "boolean") as server:
            for kind in KINDS:
                times = sorted(min(taken(server, query) for _ in range(3)) for query in kinds[kind])
                seen |= {f"{kind}_median_ms": times[len(times) // 2], f"{kind}_max_ms": times[-1]}
        return seen

    return Function(name, measure)


def sides(work, size):
    passages, cores = SIZES[size], os.cpu_count()
    key = {"passages": passages, "parts": cores, "maker": digest(MAKER)}
    make = lambda folder: work.run(sys.executable, MAKER, folder, passages, cores)
    made = work.input("passages", key, make)
    source = work.scratch / "lucene-source"
    source.mkdir(exist_ok=True)
    for part in (made / "corpus").iterdir():
        (source / f"{part.stem}.json").symlink_to(part)
    corpus = ["--corpus", made / "corpus", "--format", "search-r1"]
    ours = lambda out: [work.forage, "index", "build", *corpus, "--out", out]
    theirs = lambda out: index_command(work, ANSERINI, source, out, cores)
    index, our_build = built(work, "growth-forage", key | {"program": digest(work.forage)}, ours)
    lucene, their_build = built(work, "growth-lucene", key | {"peers": ANSERINI.versions}, theirs)
    bench, python, env = work.example("forage-retriever", "bm25_bench"), ANSERINI.venv.python(work.home), ANSERINI.environment(work.home)

    def engines(k, queries):
        yield "forage", index, [bench, index, queries, k], None
        yield "lucene", lucene, [python, PEER, "lucene", lucene, "-", queries, k], env

    groups = [[Function(f"{size}/forage/build", lambda: our_build), Function(f"{size}/lucene/build", lambda: their_build)]]
    for k in KS:
        ask = {"single": "single"}
        groups.append([
            Cold(folder, f"{size}/{name}/{k}/cold", command, ask, (), env) for name, folder, command, env in engines(k, made / "cold.jsonl")
        ])  # fmt: skip
        warm = ["single"] * passes(size)
        groups.append([
            Driven(f"{size}/{name}/{k}/warm", command, ask | {"scores": "scores"}, warm, env)
            for name, _, command, env in engines(k, made / "queries.jsonl")
        ])  # fmt: skip
    groups.append([boolean(work, f"{size}/boolean", index, made / "boolean.json")])
    groups.append([update(work, f"{size}/update", index, made)])
    return groups


def figures(size):
    for engine in ENGINES:
        for name, unit in BUILT.items():
            yield Figure(f"{size}/{engine}/build/{name}", unit, "lower")
        for k in KS:
            for way in WAYS:
                for name in ("cpu_us", "p50_us", "p99_us"):
                    yield Figure(f"{size}/{engine}/{k}/{way}/single/{name}", "µs per query", "lower")
                yield Figure(f"{size}/{engine}/{k}/{way}/single/rss_kb", "KiB", "lower")
            yield Figure(f"{size}/{engine}/{k}/cold/ready/open_us", "µs", "lower")
    for k in KS:
        yield ratio(f"{size}/cpu_over_lucene/{k}", f"{size}/forage/{k}/warm/single/cpu_us", f"{size}/lucene/{k}/warm/single/cpu_us")
    for kind in KINDS:
        yield Figure(f"{size}/boolean/{kind}_median_ms", "ms", "lower")
        yield Figure(f"{size}/boolean/{kind}_max_ms", "ms", "lower")
    slowest = [f"{size}/boolean/{kind}_max_ms" for kind in KINDS]
    yield Figure(f"{size}/boolean_max_ms", "ms", "lower", lambda found: max(found[name] for name in slowest))
    for name in ("quiet_p99_ms", "busy_p99_ms", "add_s", "ready_s", "resident_mib", "private_mib"):
        unit = {"ms": "ms", "s": "s", "mib": "MiB"}[name.rsplit("_", 1)[1]]
        yield Figure(f"{size}/update/{name}", unit, "lower")
    yield Figure(f"{size}/update/per_second", "answers/s", "higher")


def ratio(name, over, under):
    return Figure(name, "ratio", "lower", lambda found: found[over] / found[under])


def steepness(first, last, k):
    """How much more a query takes at the largest size than at the smallest, over how much more it takes Lucene."""
    name = lambda size, engine: f"{size}/{engine}/{k}/warm/single/cpu_us"
    growth = lambda found, engine: found[name(last, engine)] / found[name(first, engine)]
    return Figure(f"growth_over_lucene/{k}", "ratio", "lower", lambda found: growth(found, "forage") / growth(found, "lucene"))


def aims(sizes):
    for size in sizes:
        for k in KS:
            yield Aim(f"{size}/cpu_over_lucene/{k}", "<=", 0.5, f"{size}, best {k}: CPU of a query over Lucene's")
        if SIZES[size] <= SIZES["1m"]:
            yield Aim(f"{size}/boolean_max_ms", "<=", 20, f"{size}: ms of the slowest boolean query")
    if len(sizes) > 1:
        for k in KS:
            yield Aim(f"growth_over_lucene/{k}", "<=", 1, f"best {k}, {sizes[0]} to {sizes[-1]}: growth of a query's CPU over that of Lucene's")
    if "21m" in sizes:
        yield Aim("21m/forage/build/wall_s", "<=", 3600, "21m: seconds of the build")
        yield Aim("21m/update/resident_mib", "<=", 4096, "21m: MiB of the server, mapped files included")


def equalities(sizes):
    for size in sizes:
        for k in KS:
            sides = [f"{size}/{engine}/{k}/warm/scores" for engine in ENGINES]
            yield Equality(f"{size}, best {k}: the scores of all hits have Lucene's sum", [f"{side}/sum" for side in sides], tolerance=1e-6)
            yield Equality(f"{size}, best {k}: as many hits are found", [f"{side}/hits" for side in sides])
        yield Equality(f"{size}: what was added is in the index", [f"{size}/update/passages"], value=SIZES[size] + ADDED)
        yield Equality(f"{size}: no request is refused while passages are added", [f"{size}/update/refused"], value=0)


def tables(sizes):
    made = (("wall_s", 1), ("cpu_s", 1), ("peak_mb", 0), ("disk_mb", 0))
    built_row = lambda size, engine: [size, ENGINES[engine], *(Cell(f"{size}/{engine}/build/{name}", digits) for name, digits in made)]
    head = ("passages", "built by", "wall s", "CPU s", "peak MiB", "disk MB")
    yield Table(head, [built_row(size, engine) for size in sizes for engine in ENGINES])

    def asked_row(size, k, engine):
        cell = lambda way, name, times=1.0: Cell(f"{size}/{engine}/{k}/{way}/single/{name}", 0, times)
        cells = [cell(way, name) for way in WAYS for name in ("cpu_us", "p50_us", "p99_us")]
        over = Cell(f"{size}/cpu_over_lucene/{k}", 2) if engine == "forage" else ""
        return [size, str(k), ENGINES[engine], *cells, cell("warm", "rss_kb", 1 / 1024), over]

    head = ("passages", "k", "engine", "CPU µs", "p50 µs", "p99 µs", "cold CPU µs", "p50 µs", "p99 µs", "resident MiB", "over Lucene's CPU")
    yield Table(head, [asked_row(size, k, engine) for size in sizes for k in KS for engine in ENGINES])
    kinds = [(kind, name) for kind in KINDS for name in ("median", "max")]
    head = ("boolean queries, ms", *(f"{KINDS[kind]}, {name}" for kind, name in kinds))
    yield Table(head, [[size, *(Cell(f"{size}/boolean/{kind}_{name}_ms", 1) for kind, name in kinds)] for size in sizes])
    head = ("serving", "answers/s", "p99 ms", "p99 ms while adding", f"s to add {ADDED:,}", "s until they are served")
    head += ("MiB, mapped files left out", "included")
    cells = (("per_second", 0), ("quiet_p99_ms", 2), ("busy_p99_ms", 2), ("add_s", 2), ("ready_s", 2), ("private_mib", 0), ("resident_mib", 0))
    yield Table(head, [[size, *(Cell(f"{size}/update/{name}", digits) for name, digits in cells)] for size in sizes])


def curves(sizes):
    line = lambda figure: [(SIZES[size], f"{size}/{figure}") for size in sizes]
    both = lambda figure: {words: line(figure.format(engine)) for engine, words in ENGINES.items()}
    asked = [(engine, k) for k in (10, 1000) for engine in ENGINES]
    by_k = lambda figure: {f"{ENGINES[engine]}, best {k}": line(figure.format(engine, k)) for engine, k in asked}
    yield Curve("cpu", "CPU of a query", "passages", "µs", by_k("{}/{}/warm/single/cpu_us"))
    yield Curve("p99", "99th percentile of a query", "passages", "µs", by_k("{}/{}/warm/single/p99_us"))
    yield Curve("build", "Building", "passages", "s of CPU", both("{}/build/cpu_s"))
    yield Curve("disk", "Index on disk", "passages", "MB", both("{}/build/disk_mb"))
    slowest = {words: line(f"boolean/{kind}_max_ms") for kind, words in KINDS.items()}
    yield Curve("boolean", "The slowest boolean query of each kind", "passages", "ms", slowest)


def needs(parameters):
    """Of the disk: 700 bytes of a passage as text, up to 1,200 in our index and 800 in Lucene's, which are kept, and of the largest size
    the parts that an index is merged of beside it."""
    passages = [SIZES[size] for size in parameters["sizes"]]
    return {"disk": 2700 * sum(passages) + 1200 * max(passages)}


def benchmark(sizes):
    growth = [steepness(sizes[0], sizes[-1], k) for k in KS] if len(sizes) > 1 else []
    return Benchmark(
        title="BM25 as the corpus grows, beside Lucene",
        sides=lambda work: sides(work, *sizes),
        parameters={"seconds": 5},
        rehearsal={"seconds": 1},
        peers=(ANSERINI,),
        needs=needs,
        figures=[*(figure for size in sizes for figure in figures(size)), *growth],
        aims=list(aims(sizes)),
        equalities=list(equalities(sizes)),
        tables=list(tables(sizes)),
        curves=list(curves(sizes)),
    )


GROWTH = Growth(sizes=("200k", "1m", "5m", "21m"), usual=("200k", "1m"), rehearsed=("2k",), of=benchmark)
