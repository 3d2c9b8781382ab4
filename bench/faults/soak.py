"""Four servers under good, bad and abandoned requests for a while: `soak.py WORK MINUTES`. Called by soak.sh.

They are the retrieval server, the policy server, and two environment servers, of `search-r1` and of `code-search`, whose programs run in
the sandbox.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import servers
from program import Server, run
from talks import PROTOCOLS, Http, Mcp, Turn, WebSocket

CLIENTS = 6
# Between two requests of a client, so that two cores have room for four servers and their clients.
PAUSE_S = 0.03
SAMPLE_S = 0.5
# Longer than any server gives itself for what is asked here (a turn: 120 s): a busy machine is late, and loses no answer.
ANSWER_S = 150
# What a client does: it asks well, badly, or does not wait for the answer.
SHARES = {"good": 0.7, "bad": 0.15, "abandon": 0.15}
# A session that was closed because its client was slow, or that an abandoned turn still holds.
GONE = {404, 409, 410}
# Names of the sessions that a client leaves open and takes again later.
OPEN = 8

BOOLEAN = [
    "river AND NOT mayor",
    '"the river" OR tow*',
    "title:river",
    "+river town^2",
    "(river OR lake) -mayor",
    '(river AND "never closed',
    "NOT river",
]
PROGRAMS = [
    ("x = [n * n for n in range(2000)]\nprint(sum(x))", b"2664667000", "print(len(x), x[7])", b"2000 49"),
    ("import os\nx = os.urandom(1 << 18)\nprint(len(x))", b"262144", "print(len(x) >> 4)", b"16384"),
    ("x = search_pages('river')\nprint(type(x).__name__)", b"list", "print(x == search_pages('river'))", b"True"),
    ("x = 11\nprint(undefined)", b"NameError", "print(x * 11)", b"121"),
]
ANSWER = Turn("<answer>Velm</answer>", "answer", {"answer": "Velm"})


def searching(draw):
    """The turns of an episode of search-r1."""
    query = draw.choice(["river", "mayor of Orlen", "old town"])
    return [Turn(f"<search>{query}</search>", "search", {"query": query}, b"<information>"), ANSWER]


def programming(draw):
    """The turns of an episode of code-search: the second program finds what the first one kept."""
    first, prints, second, prints_then = draw.choice(PROGRAMS)
    turns = [(first, prints), (second, prints_then)]
    return [Turn(f"<python>\n{code}\n</python>", "run_python", {"code": code}, out) for code, out in turns] + [ANSWER]


class Client(threading.Thread):
    """One client of a server: good requests for the most part, bad ones, and some that it abandons."""

    def __init__(self, kind, server, number, until):
        super().__init__(daemon=True)
        self.kind, self.server, self.number, self.until = kind, server, number, until
        self.draw = random.Random(f"{kind.name} {number}")
        # Answers by what was asked for, and what was asked in which way.
        self.counts, self.ways = Counter(), Counter()
        self.unanswered = []

    def run(self):
        while time.monotonic() < self.until:
            name = self.draw.choices(list(SHARES), SHARES.values())[0]
            try:
                getattr(self, name)()
            except Exception as error:  # noqa: BLE001
                # Whatever it is, an answer did not come, or not as it should.
                self.unanswered.append(f"{name}: {type(error).__name__}: {error}")
            time.sleep(PAUSE_S)

    def expect(self, sort, way, answer, wanted, told=b""):
        """Counts an answer, keeps what is wrong with it, and says whether it is the one that was asked for."""
        status, text = answer
        self.counts[sort] += 1
        self.ways[way] += 1
        # A full queue is an answer too, what failed in the server is none.
        failed = b'"EXECUTION_ERROR"' in text or b'"service_unavailable"' in text
        if status in {429, 503} and not failed:
            self.counts["refused"] += 1
        elif sort == "good" and status in GONE & wanted:
            self.counts["expired"] += 1
        elif status not in wanted or told not in text:
            self.unanswered.append(f"{way}: {status} {text[:120].decode(errors='replace')}")
        else:
            return True
        return False

    def bad(self):
        body = self.draw.choice([b"", b"{{{", b"[[[1]]]", b'{"queries": 1}', b" " * (9 << 20), b"[" * 10_000])
        answer = self.server.ask("POST", self.kind.path, body, timeout=ANSWER_S)
        # The environment takes an empty body as a reset without choices.
        self.expect("bad", f"bad {body[:12]!r}", answer, {200, 400, 413, 422})

    def abandon(self):
        self.counts["abandoned"] += 1
        self.draw.choice([self.cut, self.leave])()

    def cut(self):
        """Half a request."""
        self.ways["cut"] += 1
        head, body = self.kind.request(self.server)
        self.drop((head + body)[: self.draw.randrange(len(head) + len(body))])

    def leave(self):
        """A whole request, whose answer nobody waits for."""
        self.ways["left"] += 1
        self.drop(b"".join(self.kind.request(self.server, json.dumps(self.whole()).encode())))

    def drop(self, sent, stream=None, reads=False):
        """Sends bytes and goes away, at once or within a moment, with a reset or without; where it `reads`, after the answer began."""
        with stream or self.server.connect(ANSWER_S) as stream:
            if self.draw.random() < 0.5:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                stream.sendall(sent)
                if reads:
                    stream.recv(1 << 10)
            except (BrokenPipeError, ConnectionResetError):
                pass
            time.sleep(self.draw.choice([0.0, self.draw.random() * 0.05]))


class Searches(Client):
    """A client of the retrieval server: bags of words, and boolean queries."""

    def boolean(self):
        return {"queries": [self.draw.choice(BOOLEAN)], "topk": 3, "mode": "boolean"}

    def good(self):
        way, body = self.draw.choice([("words", self.kind.body), ("boolean", self.boolean())])
        answer = self.server.ask("POST", self.kind.path, body, timeout=ANSWER_S)
        self.expect("good", way, answer, {200}, b'"result"')

    def whole(self):
        return self.draw.choice([self.kind.body, self.boolean(), self.kind.large])


class Completions(Client):
    """A client of the policy server: whole answers, and streams."""

    def stream(self):
        return self.kind.body | {"stream": True, "max_tokens": 32}

    def good(self):
        choices = [("whole", self.kind.body, b'"choices"'), ("streamed", self.stream(), b"data: [DONE]")]
        way, body, told = self.draw.choice(choices)
        answer = self.server.ask("POST", self.kind.path, body, timeout=ANSWER_S)
        self.expect("good", way, answer, {200}, told)

    def whole(self):
        return self.draw.choice([self.kind.body, self.stream()])

    def leave(self):
        if self.draw.random() < 0.5:
            return super().leave()
        self.ways["left in a stream"] += 1
        self.drop(b"".join(self.kind.request(self.server, json.dumps(self.stream()).encode())), reads=True)


class Episodes(Client):
    """A client of an environment server: episodes over HTTP, WebSocket and MCP, played to their end or not."""

    def __init__(self, kind, server, number, until, turns):
        super().__init__(kind, server, number, until)
        self.turns, self.serial = turns, 0

    def name(self, among=None):
        """A name for a session, one of so many where their number is bounded."""
        self.serial += 1
        return f"{self.number}-{self.serial}" if among is None else f"{self.number}-open-{self.serial % among}"

    def begin(self, talk, wanted):
        return self.expect("good", talk.way, talk.begin(self.draw.randrange(1000)), wanted)

    def play(self, protocol):
        """An episode to its end."""
        talk = protocol(self.server, self.name(), ANSWER_S)
        try:
            if not self.begin(talk, {200}):
                return
            for turn in self.turns(self.draw):
                if not self.expect("good", talk.way, talk.turn(turn), {200} | GONE, turn.told):
                    return
            self.expect("good", talk.way, talk.end(), {200} | GONE)
        finally:
            talk.close()

    def good(self):
        self.play(self.draw.choice(PROTOCOLS))

    def bad(self):
        self.draw.choice([super().bad, self.bad_message, self.bad_call])()

    def bad_message(self):
        """Messages of a WebSocket that are none; the connection goes on."""
        talk = WebSocket(self.server, None, ANSWER_S)
        try:
            # A step is well formed, and there is no episode yet.
            step = talk.step(ANSWER)
            text = self.draw.choice(["{{{", "[" * 10_000, '{"type": "nothing"}', '{"type": "step"}', step])
            if self.expect("bad", "bad message", talk.say(text), {410, 422}):
                self.begin(talk, {200})
        finally:
            talk.close()

    def bad_call(self):
        """Requests at /mcp that are none, without a session."""
        body = self.draw.choice([b"{{{", b"[" * 10_000, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}])
        status, _, answer = Mcp(self.server, None, ANSWER_S).post(body)
        self.expect("bad", "bad call", (status, answer), {400, 415, 422})

    def abandon(self):
        self.counts["abandoned"] += 1
        self.draw.choice([self.cut, self.leave, self.unfinished])()

    def leave(self):
        """An episode that ends for its client in the middle of a turn, or of the message that was to be one."""
        whole = self.draw.random() < 0.7
        self.ways["left in a turn" if whole else "cut in a turn"] += 1

        def drop(sent, stream=None):
            self.drop(sent if whole else sent[: self.draw.randrange(len(sent))], stream)

        self.quit(lambda talk, turn: talk.leave(turn, drop))

    def unfinished(self):
        """An episode that nobody goes on with after a turn."""
        self.ways["unfinished"] += 1
        self.quit(lambda talk, turn: self.expect("good", talk.way, talk.turn(turn), {200} | GONE, turn.told))

    def quit(self, last):
        """Begins an episode and does with it what is the last for it."""
        protocol = self.draw.choice(PROTOCOLS)
        talk = protocol(self.server, self.name(OPEN), ANSWER_S)
        try:
            # What was left before may still be under way.
            if self.begin(talk, {200} | GONE if protocol is Http else {200}):
                last(talk, self.turns(self.draw)[0])
        finally:
            talk.close()


class Samples(threading.Thread):
    """Memory of a server, all along."""

    def __init__(self, server, until):
        super().__init__(daemon=True)
        self.server, self.until = server, until
        self.mib = []

    def run(self):
        while time.monotonic() < self.until:
            # Pages of mapped index files are the kernel's to take back.
            self.mib.append(self.server.resident_mib("RssAnon"))
            time.sleep(SAMPLE_S)

    def quarter(self, number):
        size = max(1, len(self.mib) // 4)
        part = self.mib[number * size : (number + 1) * size]
        return sum(part) / len(part)


def client_of(kind, server, number, until):
    """A client as a server needs it."""
    if kind.name == "retriever":
        return Searches(kind, server, number, until)
    if kind.name == "policy":
        return Completions(kind, server, number, until)
    return Episodes(kind, server, number, until, programming if kind.name == "code-search" else searching)


def warmed(kind, server):
    """The descriptors of a server that has answered in each of its ways once; ends where one of them fails."""
    first = client_of(kind, server, "first", 0)
    if isinstance(first, Episodes):
        for protocol in PROTOCOLS:
            first.play(protocol)
    if first.unanswered or not kind.good(server):
        raise SystemExit(f"{kind.title}: not even the first requests are answered: {first.unanswered}")
    return servers.settled(server)


def at_rest(server, descriptors):
    """Whether nothing is left of the requests: `/metrics` itself may count as one, and sessions that nobody ended expire.

    Two descriptors more are the connection that asks, and one that is closing.
    """
    return server.descriptors() <= descriptors + 2 and server.metric("in_flight") <= 1 and server.metric("sessions_active") == 0


def judged(kind, server, clients, samples, descriptors):
    """The figures of one server, and whether they hold."""
    begun = time.monotonic()
    while not (rest := at_rest(server, descriptors)) and time.monotonic() - begun < 60:
        time.sleep(0.5)
    sorts = ("good", "bad", "abandoned", "refused", "expired")
    counts = {sort: sum(client.counts[sort] for client in clients) for sort in sorts}
    unanswered = [what for client in clients for what in client.unanswered]
    second, last = samples.quarter(1), samples.quarter(3)
    figures = {
        **counts,
        "ways": dict(sorted(sum((client.ways for client in clients), Counter()).items())),
        "unanswered": len(unanswered),
        "first_unanswered": unanswered[:3],
        "second_quarter_mib": round(second, 1),
        "last_quarter_mib": round(last, 1),
        "peak_mib": round(max(samples.mib), 1),
        "descriptors": [descriptors, server.descriptors()],
        "in_flight": server.metric("in_flight"),
        "sessions_active": server.metric("sessions_active"),
    }
    steady = last <= second * 1.10
    # A server that refuses is not under load, and neither is one whose clients come too late for their sessions.
    busy = max(counts["refused"], counts["expired"]) < counts["good"] / 10
    figures["held"] = steady and busy and not unanswered and rest and kind.good(server)
    return figures


def main():
    work, minutes = Path(sys.argv[1]), float(sys.argv[2])
    world, index = work / "world", work / "index"
    run("world", "--pages", 300, "--seed", 1, "--out", world)
    run("index", "build", "--corpus", world / "search-r1" / "wiki.jsonl", "--format", "search-r1", "--out", index)
    programs = servers.Kind("code-search", ["env", "code-search", "--pages", "200"], "/reset", {"seed": 7})
    kinds = [*servers.kinds(index, world), programs]
    # Sessions that nobody ends take places until they expire.
    expiry = ["--session-ttl-seconds", "10"]
    more = {kind.name: expiry if kind.arguments[0] == "env" else [] for kind in kinds}
    begun: dict[str, Server] = {kind.name: kind.start(work, *more[kind.name]) for kind in kinds}
    descriptors = {kind.name: warmed(kind, begun[kind.name]) for kind in kinds}
    until = time.monotonic() + minutes * 60
    samples = {name: Samples(server, until) for name, server in begun.items()}
    clients = {kind.name: [client_of(kind, begun[kind.name], number, until) for number in range(CLIENTS)] for kind in kinds}
    for thread in [*samples.values(), *(client for group in clients.values() for client in group)]:
        thread.start()
    for group in clients.values():
        for one in group:
            one.join()
    figures = {"minutes": minutes}
    for kind in kinds:
        name = kind.name
        samples[name].join()
        figures[name] = judged(kind, begun[name], clients[name], samples[name], descriptors[name])
        figures[name]["ended_rc"] = begun[name].stop()[0]
    held = all(figures[kind.name]["held"] and figures[kind.name]["ended_rc"] == 0 for kind in kinds)
    print(json.dumps({"bench": "soak", "held": held, "figures": figures}))
    sys.exit(0 if held else 1)


main()
