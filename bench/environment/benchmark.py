"""Scripted episodes per second of each environment, rewards included: in process, over HTTP and over WebSocket, by sessions at a time;
beside them the same search turns in SkyRL-gym's own search environment, by threads, against `forage serve retriever` over the same
passages. Clients and servers share the machine.

SkyRL-gym asks a retriever over HTTP, as our environments over HTTP and WebSocket are asked by their clients: those are compared. In
process nothing crosses a socket, which is said beside, and compared with nothing.
"""

from harness.declare import ROOT, Aim, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Venv
from harness.sides import Command, Function

SKYRL = Venv("skyrl-gym==0.4.0")
SEARCH = "forage/search-r1-v0"
ENVIRONMENTS = {SEARCH: "search-r1", "forage/code-search-v0": "code-search", "forage/query-writer-v0": "query-writer"}
WAYS = {"process": "in process", "http": "HTTP", "websocket": "WebSocket"}
SESSIONS = (1, 32, 256)


def ours(lines):
    return {f"{line['environment']}/{line['way']}/{line['sessions']}": line["episodes_per_s"] for line in lines}


def theirs(lines):
    return {key: value for line in lines for key, value in line.items()}


def sides(work):
    program, python = work.example("forage-env", "environment_load"), SKYRL.python(work.home)
    seconds, episodes = work.parameters["seconds"], work.scratch / "episodes.jsonl"
    world, index = work.scratch / "world", work.scratch / "index"
    # The world that the example plays in.
    work.run(work.forage, "world", "--pages", 2000, "--seed", 7, "--out", world)
    work.run(work.forage, "index", "build", "--corpus", world / "beir", "--format", "beir", "--out", index)
    work.run(program, 0.01, episodes, SEARCH)

    def skyrl():
        with work.serve("retriever", index, "--topk", 3) as url:
            return Command("", [python, ROOT / "bench/environment/peer.py", url, episodes, seconds], theirs).measure()

    return [[Command("forage", [program, seconds, episodes, *ENVIRONMENTS], ours), Function("skyrl-gym", skyrl)]]


def figures():
    for environment in ENVIRONMENTS:
        for way in WAYS:
            for sessions in SESSIONS:
                yield Figure(f"forage/{environment}/{way}/{sessions}", "episodes/s", "higher")
    for sessions in SESSIONS:
        yield Figure(f"skyrl-gym/{sessions}", "episodes/s", "higher")
    for way in ("http", "websocket"):
        ratio = lambda found, way=way: found[f"forage/{SEARCH}/{way}/32"] / found["skyrl-gym/32"]
        yield Figure(f"{way}_over_skyrl_gym", "ratio", "higher", ratio)


def rows():
    for environment, name in ENVIRONMENTS.items():
        for way, words in WAYS.items():
            yield [name, words, *(Cell(f"forage/{environment}/{way}/{sessions}") for sessions in SESSIONS)]
    yield ["SkyRL-gym, search", "threads, retriever over HTTP", *(Cell(f"skyrl-gym/{sessions}") for sessions in SESSIONS)]


BENCHMARK = Benchmark(
    title="Episodes per second of the environments, beside SkyRL-gym",
    sides=sides,
    parameters={"seconds": 3},
    rehearsal={"seconds": 0.2},
    peers=(SKYRL,),
    figures=list(figures()),
    aims=[
        Aim(f"forage/{SEARCH}/process/256", ">=", 18_000, "episodes per second in process, 256 sessions"),
        Aim("http_over_skyrl_gym", ">=", 4, "over HTTP, 32 sessions, over SkyRL-gym's rate"),
        Aim("websocket_over_skyrl_gym", ">=", 5, "over WebSocket, 32 sessions, over SkyRL-gym's rate"),
    ],
    equalities=[Equality("SkyRL-gym pays for as many episodes as the oracle answers rightly", ["skyrl-gym/paid", "skyrl-gym/expected"])],
    tables=[Table(("environment", "way", *(f"{sessions} at a time" for sessions in SESSIONS)), list(rows()))],
)
