"""Scripted episodes per second of each environment, rewards included: in process, over HTTP and over WebSocket, by sessions at a time;
beside them the same search turns in SkyRL-gym's own search environment, by threads, and in verifiers' own loop of rollouts, which awaits
them, against `forage serve retriever` over the same passages. Clients and servers share the machine.

Both ask a retriever over HTTP, as our environments over HTTP and WebSocket are asked by their clients: those are compared. In process
nothing crosses a socket, which is said beside, and compared with nothing.
"""

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Venv
from harness.sides import Command, Function

SKYRL, VERIFIERS = Venv("skyrl-gym==0.4.0"), Venv("verifiers==0.2.1")
# By name: the script, its packages, the row of the table.
PEERS = {
    "skyrl-gym": ("peer.py", SKYRL, ("SkyRL-gym, search", "threads, retriever over HTTP")),
    "verifiers": ("verifiers_peer.py", VERIFIERS, ("verifiers, search", "coroutines, retriever over HTTP")),
}
SEARCH = "forage/search-r1-v0"
ENVIRONMENTS = {SEARCH: "search-r1", "forage/code-search-v0": "code-search", "forage/query-writer-v0": "query-writer"}
WAYS = {"process": "in process", "http": "HTTP", "websocket": "WebSocket"}
SESSIONS = (1, 32, 256)
# Least rate over that of a peer, 32 sessions at a time.
AIMS = {"http": 4, "websocket": 5}


def ours(lines):
    return {f"{line['environment']}/{line['way']}/{line['sessions']}": line["episodes_per_s"] for line in lines}


def theirs(lines):
    return {key: value for line in lines for key, value in line.items()}


def sides(work):
    program, pythons = work.example("forage-env", "environment_load"), {name: peer[1].python(work.home) for name, peer in PEERS.items()}
    seconds, episodes = work.parameters["seconds"], work.scratch / "episodes.jsonl"
    world, index = work.scratch / "world", work.scratch / "index"
    # The world that the example plays in.
    work.run(work.forage, "world", "--pages", 2000, "--seed", 7, "--out", world)
    work.run(work.forage, "index", "build", "--corpus", world / "beir", "--format", "beir", "--out", index)
    work.run(program, 0.01, episodes, SEARCH)

    def peer(name):
        def measure():
            with work.serve("retriever", index, "--topk", 3) as url:
                script = ROOT / "bench/environment" / PEERS[name][0]
                return Command("", [pythons[name], script, url, episodes, seconds], theirs).measure()

        return Function(name, measure)

    return [[Command("forage", [program, seconds, episodes, *ENVIRONMENTS], ours), *map(peer, PEERS)]]


def figures():
    for environment in ENVIRONMENTS:
        for way in WAYS:
            for sessions in SESSIONS:
                yield Figure(f"forage/{environment}/{way}/{sessions}", "episodes/s", "higher")
    for name in PEERS:
        for sessions in SESSIONS:
            yield Figure(f"{name}/{sessions}", "episodes/s", "higher")
        for way in AIMS:
            ratio = lambda found, name=name, way=way: found[f"forage/{SEARCH}/{way}/32"] / found[f"{name}/32"]
            yield Figure(f"{way} over {name}", "ratio", "higher", ratio)


def rows():
    for environment, name in ENVIRONMENTS.items():
        for way, words in WAYS.items():
            yield [name, words, *(Cell(f"forage/{environment}/{way}/{sessions}") for sessions in SESSIONS)]
    for name, (*_, words) in PEERS.items():
        yield [*words, *(Cell(f"{name}/{sessions}") for sessions in SESSIONS)]


BENCHMARK = Benchmark(
    title="Episodes per second of the environments, beside SkyRL-gym",
    sides=sides,
    parameters={"seconds": 3},
    rehearsal={"seconds": 0.2},
    peers=(SKYRL, VERIFIERS),
    figures=list(figures()),
    aims=[
        Aim(f"forage/{SEARCH}/process/256", ">=", 18_000, "episodes per second in process, 256 sessions"),
        *(
            Aim(f"{way} over {name}", ">=", least, f"over {WAYS[way]}, 32 sessions, over the rate of {words[0]}")
            for name, (*_, words) in PEERS.items()
            for way, least in AIMS.items()
        ),
    ],
    equalities=[
        Equality(f"{words[0]}: it pays for as many episodes as the oracle answers rightly", [f"{name}/paid", f"{name}/expected"])
        for name, (*_, words) in PEERS.items()
    ],
    tables=[Table(("environment", "way", *(f"{sessions} at a time" for sessions in SESSIONS)), list(rows()))],
)
