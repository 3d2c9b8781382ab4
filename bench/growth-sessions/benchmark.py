"""Environments, sandboxes and the retrieval server with 10 to 10,000 sessions open: turns per second, latency, memory of a session.

Environments: `forage serve env`; each session has an episode and has taken a turn in it when its memory is counted, while it waits. Then 32
connections take turns in all of them, one session after the other; an episode that is over begins again. Sandboxes: sessions in one
process, on two threads. The retrieval server: as many connections, each of which asks one query after the other; their memory is the most
that the server has meanwhile. Clients share the machine with the servers.
"""

import asyncio
import json
import math
import resource
import subprocess
import time

from harness.declare import Aim, BenchError, Benchmark, Cell, Curve, Equality, Figure, Growth, Table
from harness.servers import Load, Server, free_port
from harness.sides import Driven, Function
from sandbox.benchmark import write_pages

SIZES = (10, 100, 1000, 10_000)
# What a turn says, by environment, and what its observation has where the search finds something; the turn ends no episode.
TURNS = {
    "search-r1": ("<search>the town by the river</search>", "Doc 3("),
    "code-search": ('<python>\nfor page in search_pages("the town by the river")[:3]:\n    print("Page", page["title"])\n</python>', "Page "),
}
KINDS = {"search-r1": "search", "code-search": "programs", "sandbox": "sandbox", "server": "retrieval server"}
CLIENTS, PAGES, QUESTIONS = 32, 2000, 500


def p99(times):
    ranked = sorted(times)
    return ranked[int((len(ranked) - 1) * 0.99)]


class EnvironmentServer(Server):
    def probe(self):
        asyncio.run(self._alive())

    async def _alive(self):
        client = await Client.open(self.address)
        await client.ask("/health", None)
        client.close()


class Client:
    """A connection that stays open, with as little around it as asking takes."""

    @classmethod
    async def open(cls, address):
        made, (host, port) = cls(), address.split(":")
        made.address = address
        made.reader, made.writer = await asyncio.open_connection(host, int(port))
        return made

    async def ask(self, path, body):
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {self.address}\r\n"
        self.writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
        answer = await self.reader.readexactly(length)
        if head.split()[1] != "200":
            raise BenchError(f"{path} was answered with {head.split()[1]}: {answer[:500].decode(errors='replace')}")
        return json.loads(answer)

    def close(self):
        self.writer.close()


class Episodes:
    """Sessions of an environment server, which take turns that find something."""

    def __init__(self, address, count, turn, found, name="s"):
        self.address, self.count, self.turn, self.found, self.name = address, count, turn, found, name

    async def each(self, act):
        """Acts for every client with the numbers of its sessions: no two of them ask for one session."""
        clients = [await Client.open(self.address) for _ in range(min(CLIENTS, self.count))]
        try:
            await asyncio.gather(*(act(client, range(at, self.count, len(clients))) for at, client in enumerate(clients)))
        finally:
            for client in clients:
                client.close()

    async def reset(self, client, number):
        await client.ask("/reset", {"task_index": number % QUESTIONS, "seed": number, "episode_id": f"{self.name}{number}"})

    async def step(self, client, number):
        return await client.ask("/step", {"episode_id": f"{self.name}{number}", "action": {"text": self.turn}})

    def open(self):
        async def act(client, numbers):
            for number in numbers:
                await self.reset(client, number)
                text = (await self.step(client, number))["observation"]["text"]
                # A search without hits costs less than those that are meant.
                if self.found not in text:
                    raise BenchError(f"the turn {self.turn!r} finds nothing: {text[:500]!r}")

        asyncio.run(self.each(act))

    def play(self, seconds):
        """The times of turns in all sessions, each of which takes at least one, and how long all took."""
        times, begun = [], time.perf_counter()

        async def act(client, numbers):
            first = True
            while first or time.perf_counter() - begun < seconds:
                for number in numbers:
                    if not first and time.perf_counter() - begun >= seconds:
                        break
                    asked = time.perf_counter()
                    answer = await self.step(client, number)
                    times.append(time.perf_counter() - asked)
                    if answer["done"]:
                        await self.reset(client, number)
                first = False

        asyncio.run(self.each(act))
        return times, time.perf_counter() - begun


def environment(work, name, count):
    def measure():
        port = free_port()
        limits = ["--max-sessions", count + CLIENTS, "--session-ttl-seconds", 3600]
        world = ["--pages", PAGES, "--limit", QUESTIONS]
        command = [work.forage, "serve", "env", name, *world, *limits, "--addr", f"127.0.0.1:{port}"]
        with EnvironmentServer(command, port, work.scratch / f"{name}.log") as server:
            # What the first sessions bring to life is shared by all.
            Episodes(server.address, CLIENTS, *TURNS[name], "first").open()
            before = server.memory_mib("RssAnon")
            episodes = Episodes(server.address, count, *TURNS[name])
            episodes.open()
            each = (server.memory_mib("RssAnon") - before) * 1024 / count
            times, taken = episodes.play(work.parameters["seconds"])
            return {"per_second": len(times) / taken, "p99_ms": p99(times) * 1e3, "kib_each": each, "peak_mib": max(server.private)}

    return Function(f"{count}/{name}", measure)


def sandbox(work, count):
    """The crowd of `sandbox_bench`, with the pages and the turn of bench/sandbox."""
    program, pages, cache = work.example("forage-sandbox", "sandbox_bench"), work.scratch / "pages.json", work.scratch / "cache"
    write_pages(pages)
    # Compiles the interpreter, which is not part of the turns.
    subprocess.run([program, pages, cache], input="", capture_output=True, text=True, check=True)
    read = lambda name, seen: {
        "per_second": seen["turns_per_s"], "p99_ms": p99(seen["us"]) / 1e3, "kib_each": seen["kib_each"],
    } if name == "crowd" else {}  # fmt: skip
    side = Driven("", [program, pages, cache], {"crowd": f"crowd {count}"}, read=read)
    return Function(f"{count}/sandbox", lambda: {name.removeprefix("crowd/"): value for name, value in side.measure().items()})


def server(work, count):
    """Connections of the retrieval server, as its load client opens them."""
    world, index = work.scratch / "world", work.scratch / "index"
    work.run(work.forage, "world", "--pages", PAGES, "--seed", 7, "--out", world)
    work.run(work.forage, "index", "build", "--corpus", world / "beir", "--format", "beir", "--out", index)
    load = Load(work, world / "beir/queries.jsonl")

    def measure():
        port = free_port()
        limits = ["--max-connections", count + CLIENTS, "--queue", count + CLIENTS]
        command = [work.forage, "serve", "retriever", index, *limits, "--addr", f"127.0.0.1:{port}"]
        with Server(command, port, work.scratch / "server.log") as serving:
            load(serving, min(CLIENTS, count), 1)
            before, first = serving.memory_mib("RssAnon"), len(serving.private)
            # As long as it takes until all connections have asked a few times.
            seen = load(serving, count, max(work.parameters["seconds"], math.ceil(count / 1000)))
            each = (max(serving.private[max(0, first - 1) :]) - before) * 1024 / count
            return {name: seen[name] for name in ("per_second", "p99_ms", "other_statuses")} | {"kib_each": max(each, 0)}

    return Function(f"{count}/server", measure)


def sides(work, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count:
        raise BenchError(f"{count} connections need {2 * count} file descriptors, and the limit is {hard}; raise it with ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sessions = [[environment(work, name, count)] for name in TURNS]
    return [*sessions, [sandbox(work, count)], [server(work, count)]]


def figures(count):
    for kind in KINDS:
        yield Figure(f"{count}/{kind}/per_second", "turns/s", "higher")
        yield Figure(f"{count}/{kind}/p99_ms", "ms", "lower")
        yield Figure(f"{count}/{kind}/kib_each", "KiB", "lower")


def kept(kind, sizes):
    """Turns per second at the most sessions over the best of all sizes."""
    rates = [f"{count}/{kind}/per_second" for count in sizes]
    return Figure(f"kept/{kind}", "ratio", "higher", lambda found: found[rates[-1]] / max(found[rate] for rate in rates))


def aims(sizes):
    for count in sizes:
        # Of fewer sessions it is lost in what the process takes anyhow.
        if count >= 1000:
            yield Aim(f"{count}/search-r1/kib_each", "<=", 4, f"{count:,} sessions: KiB of an idle one that searches")
            yield Aim(f"{count}/code-search/kib_each", "<=", 300, f"{count:,} sessions: KiB of an idle one with programs")
            yield Aim(f"{count}/sandbox/kib_each", "<=", 300, f"{count:,} sandboxes: KiB of an idle one")
    if len(sizes) > 1:
        for kind, words in KINDS.items():
            yield Aim(f"kept/{kind}", ">=", 0.8, f"{words}: turns per second with {sizes[-1]:,} sessions over the best")


def benchmark(names):
    sizes = [int(name) for name in names]
    growing = [kept(kind, sizes) for kind in KINDS] if len(sizes) > 1 else []
    head = ("sessions", *(f"{words}, {what}" for words in KINDS.values() for what in ("turns/s", "p99 ms", "KiB each")))
    cells = lambda count: [
        Cell(f"{count}/{kind}/{name}", digits) for kind in KINDS for name, digits in (("per_second", 0), ("p99_ms", 1), ("kib_each", 1))
    ]
    line = lambda figure: {words: [(count, f"{count}/{kind}/{figure}") for count in sizes] for kind, words in KINDS.items()}
    return Benchmark(
        title="Sessions, from 10 to 10,000",
        sides=lambda work: sides(work, *sizes),
        parameters={"seconds": 5},
        rehearsal={"seconds": 0.5},
        figures=[*(figure for count in sizes for figure in figures(count)), *growing],
        aims=list(aims(sizes)),
        equalities=[
            Equality(f"{count} connections: every request is answered with 200", [f"{count}/server/other_statuses"], value=0)
            for count in sizes
        ],
        tables=[Table(head, [[f"{count:,}", *cells(count)] for count in sizes])],
        curves=[
            Curve("rate", "Turns with so many sessions open", "sessions", "turns/s", line("per_second")),
            Curve("p99", "99th percentile of a turn", "sessions", "ms", line("p99_ms")),
            Curve("memory", "Memory of a session", "sessions", "KiB", line("kib_each")),
        ],
    )


GROWTH = Growth(sizes=tuple(map(str, SIZES)), usual=tuple(map(str, SIZES)), rehearsed=("10",), of=benchmark)
