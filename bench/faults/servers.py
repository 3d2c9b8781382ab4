"""Cells of the three servers: clients that are slow, broken, greedy, gone or hostile, signals, ports, clocks, dead upstreams."""

import json
import os
import re
import resource
import signal
import socket
import struct
import threading
import time
from contextlib import contextmanager

from folders import FAKETIME, faked
from peers import Passages, Peer
from program import Cell, Server, received, run, shown

# Heads and bodies have 30 s each to arrive, and bodies begin after their heads.
HEADER_S, BODY_S = 35, 40
# A client may keep an answer waiting for 30 s, and a second more for each 64 KiB that it takes.
DRIP_LEAST_S, DRIP_S = 25, 60
# More of an answer than the systems take off a server's hands.
SYSTEMS_HOLD = 8 << 20
# After SIGTERM requests in flight have the 10 s of `--drain-seconds`, answers that are being sent 2 s more; the rest is for the process.
STOP_S = 13
# A server without descriptors, or with too many connections, answers again within this time.
RECOVERY_S = 5
# Idle connections: more than the 2,048 that a server keeps, where this process may open as many.
FLOOD, KEPT = 2500, 2048
# Descriptors that this process and the server need besides connections.
SPARE = 256
# Requests whose connection ended before any of an answer are made again so often.
TRIES = 5


class Kind:
    """A server of the program, its arguments and a request that it answers well."""

    def __init__(self, name, arguments, path, body, large=None):
        self.name, self.arguments, self.path, self.body = name, arguments, path, body
        # A request whose answer is large.
        self.large = large
        self.title = f"{name} server"

    def start(self, work, *more, **options):
        return Server(work, self.name, *self.arguments, *more, **options)

    def good(self, server, timeout=30.0):
        status, _ = server.ask("POST", self.path, self.body, timeout=timeout)
        return status == 200

    def request(self, server, body=None, length=None):
        """The bytes of a request."""
        body = json.dumps(self.body).encode() if body is None else body
        length = len(body) if length is None else length
        head = f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        return head.encode(), body


def kinds(index, world):
    questions = world / "search-r1" / "train.jsonl"
    large = {"queries": ["river"] * 50, "topk": 100}
    return [
        Kind("retriever", ["retriever", index], "/retrieve", {"queries": ["river"], "topk": 3}, large),
        Kind("env", ["env", "search-r1", "--index", index, "--questions", questions], "/reset", {"seed": 7}),
        Kind(
            "policy",
            ["policy", "builtin:quickstart", "--cache-mib", "32"],
            "/v1/completions",
            {"model": "quickstart", "prompt": "Question: Who?\n", "max_tokens": 8},
        ),
    ]


@contextmanager
def held(server, count, send=b""):
    """Connections that stay open."""
    streams = []
    try:
        for _ in range(count):
            try:
                stream = socket.create_connection(("127.0.0.1", server.port), timeout=2)
                stream.sendall(send)
            except OSError:
                # Full: what matters is what the server does next.
                continue
            streams.append(stream)
        yield streams
    finally:
        for stream in streams:
            stream.close()


def closed_after(streams, within, feed=None):
    """Seconds until the server has closed every stream, and how many it closed; `feed` goes to each once a second."""
    begun = time.monotonic()
    open_ones = set(streams)
    for stream in streams:
        stream.setblocking(False)
    last = begun
    while open_ones and time.monotonic() - begun < within:
        for stream in list(open_ones):
            try:
                # An answer such as 408 comes before the end.
                while stream.recv(1 << 16):
                    pass
                open_ones.discard(stream)
            except BlockingIOError:
                pass
            except OSError:
                open_ones.discard(stream)
        if feed is not None and time.monotonic() - last >= 1:
            last = time.monotonic()
            for stream in list(open_ones):
                try:
                    stream.send(feed)
                except OSError:
                    open_ones.discard(stream)
        time.sleep(0.2)
    return time.monotonic() - begun, len(streams) - len(open_ones)


class Pulse:
    """Asks `/healthz` until it is stopped, and keeps the slowest answer."""

    def __init__(self, server):
        self.server, self.worst, self.missed, self.asked = server, 0.0, 0, 0
        self.going = True
        self.thread = threading.Thread(target=self.beat, daemon=True)

    def beat(self):
        while self.going:
            took = self.server.healthy(timeout=5.0)
            self.asked += 1
            if took is None:
                self.missed += 1
            else:
                self.worst = max(self.worst, took)
            time.sleep(0.2)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join()


def slow(kind, work, fault, within, count, send, feed):
    """Clients that never finish a header or a body."""
    cell = Cell(kind.title, fault, f"closed within {within} s; /healthz within 2 s meanwhile")
    with kind.start(work) as server, held(server, count, send(server)) as streams, Pulse(server) as pulse:
        took, closed = closed_after(streams, within + 5, feed)
        cell.told_s = round(took, 1)
        cell.seen = f"{closed} of {len(streams)} closed, /healthz at worst {pulse.worst:.2f} s, {pulse.missed} missed"
        cell.typed = "closed" if closed == len(streams) else "kept"
        cell.lost = "nothing" if kind.good(server) else "the server"
        cell.check(closed == len(streams) and took <= within, "connections stay open")
        cell.check(pulse.missed == 0 and pulse.worst <= 2, "/healthz was held up")
        cell.check(cell.lost == "nothing", "the server answers no more")
    return cell.done()


def half_header(server):
    return f"POST / HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\nx-slow: ".encode()


def flood(kind, work):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = max(1, min(FLOOD, soft - SPARE))
    # At most three quarters of a server's descriptors are connections.
    over = count - min(KEPT, soft // 4 * 3)
    expected = "/healthz within 2 s at worst, requests answered" + (f", the {over} that waited longest closed" if over > 0 else "")
    cell = Cell(kind.title, f"{count} idle connections", expected)
    with kind.start(work) as server, held(server, count) as streams:
        with Pulse(server) as pulse:
            time.sleep(4)
            good = kind.good(server)
        # Some may not have come in.
        over -= count - len(streams)
        _, closed = closed_after(streams, 1)
        cell.seen = (
            f"{len(streams)} connected, {closed} closed, /healthz at worst {pulse.worst:.2f} s, "
            f"{pulse.missed} of {pulse.asked} missed"
        )
        cell.typed = "refused" if pulse.missed else "no fault"
        cell.lost = "nothing" if good else "a request"
        cell.check(pulse.missed == 0 and pulse.worst <= 2, "/healthz was held up")
        cell.check(good, "a request was not answered")
        cell.check(closed >= over, "more connections than there may be stay open")
    return cell.done()


def exhausted(kind, work):
    """More connections than the server has descriptors."""
    cell = Cell(kind.title, "300 half headers, 256 descriptors", f"/healthz answers again within {RECOVERY_S} s")

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with kind.start(work, preexec=limit) as server, held(server, 300) as streams:
        text = half_header(server)
        for stream in streams:
            try:
                stream.sendall(text)
            except OSError:
                pass
        took = server.recovers(60)
        cell.told_s = None if took is None else round(took, 1)
        cell.seen = "never answers again" if took is None else f"/healthz answers after {took:.1f} s"
        cell.lost = "nothing" if took is not None and kind.good(server) else "the server"
        cell.check(took is not None and took <= RECOVERY_S, "the server stays shut")
    return cell.done()


def refused(kind, work):
    """Requests that cannot be answered: each has its status, is counted, and harms nobody."""
    bodies = {
        "empty body": (b"", {400, 422}),
        "garbage body": (b"\x00\xff{{{", {400, 422}),
        "JSON of another shape": (b"[[[1]]]", {400, 422}),
        "oversized body, 9 MiB": (b"[" + b" " * (9 << 20) + b"]", {413}),
        "deeply nested body": (b"[" * 200_000, {400, 422}),
    }
    cells = []
    with kind.start(work) as server:
        if kind.name == "env":
            # A reset without choices is a request like any other.
            del bodies["empty body"]
        for fault, (body, statuses) in bodies.items():
            names = " or ".join(str(status) for status in sorted(statuses))
            cell = Cell(kind.title, fault, f"{names} within 5 s, counted in /metrics")
            before = server.metric("errors_total")
            begun = time.monotonic()
            status, answer = server.ask("POST", kind.path, body)
            cell.told_s = round(time.monotonic() - begun, 1)
            counted = server.metric("errors_total") - before
            cell.seen, cell.typed = shown(answer.decode(errors="replace"), 90), str(status)
            cell.counted = f"errors_total +{counted:.0f}"
            cell.lost = "nothing" if kind.good(server) else "the server"
            cell.check(status in statuses, "another status")
            cell.check(counted >= 1, "not counted")
            cell.check(cell.told_s <= 5, "it took too long")
            cell.check(cell.lost == "nothing", "the server answers no more")
            cells.append(cell.done())
        cells.append(endless(kind, server))
        cells.append(large_header(kind, server))
        cells.append(noise(kind, server))
        cells += [stranger(kind, server, *case) for case in STRANGERS]
    return cells


def endless(kind, server):
    """A chunked body without an end."""
    cell = Cell(kind.title, "endless chunked body", "413 or closed within 20 s; memory stays")
    before = server.resident_mib()
    begun, sent = time.monotonic(), 0
    head = kind.request(server)[0].decode()
    head = re.sub(r"content-length: \d+", "transfer-encoding: chunked", head).encode()
    piece = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    status = None
    with server.connect(5) as stream:
        try:
            stream.sendall(head)
            while time.monotonic() - begun < 30 and sent < 1 << 30:
                stream.sendall(piece)
                sent += 1 << 16
            status = "read on"
        except OSError:
            status = "closed"
    grown = server.resident_mib() - before
    cell.told_s = round(time.monotonic() - begun, 1)
    cell.seen = f"{status} after {sent >> 20} MiB, memory +{grown:.0f} MiB"
    cell.typed, cell.lost = status, "nothing" if kind.good(server) else "the server"
    cell.check(status == "closed" and cell.told_s <= 20, "the server reads on")
    cell.check(grown < 64, "memory grows with the body")
    cell.check(cell.lost == "nothing", "the server answers no more")
    return cell.done()


def large_header(kind, server):
    cell = Cell(kind.title, "header of 4 MiB", "431, 400 or closed within 5 s")
    begun = time.monotonic()
    status, answer = server.ask("GET", "/healthz", headers={"x-large": "x" * (4 << 20)})
    cell.told_s = round(time.monotonic() - begun, 1)
    cell.seen, cell.typed = shown(answer.decode(errors="replace"), 60) or "closed", str(status or "closed")
    cell.lost = "nothing" if kind.good(server) else "the server"
    cell.check(status in (431, 400, None) and cell.told_s <= 5, "it was taken")
    cell.check(cell.lost == "nothing", "the server answers no more")
    return cell.done()


def noise(kind, server):
    cell = Cell(kind.title, "bytes that are not HTTP", "400 or closed within 5 s")
    begun = time.monotonic()
    with server.connect(5) as stream:
        stream.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(400) + b"\r\n\r\n")
        status, answer = received(stream, 10)
    cell.told_s = round(time.monotonic() - begun, 1)
    cell.seen, cell.typed = shown(answer.decode(errors="replace"), 60) or "closed", str(status or "closed")
    cell.lost = "nothing" if kind.good(server) else "the server"
    cell.check(status in (400, None) and answer != b"no answer in time" and cell.told_s <= 5, "it was taken")
    return cell.done()


STRANGERS = [
    ("request of a foreign Origin", {"origin": "https://evil.example"}),
    ("request of a foreign Host", {"host": "evil.example"}),
    ("request that a foreign page makes without an Origin", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}),
    ("form of a browser (text/plain)", {"content-type": "text/plain", "origin": "https://evil.example"}),
]


def stranger(kind, server, fault, headers):
    cell = Cell(kind.title, fault, "403 (415) within 1 s without a token on a loopback address")
    begun = time.monotonic()
    status, answer = server.ask("POST", kind.path, kind.body, headers=headers)
    cell.told_s = round(time.monotonic() - begun, 1)
    cell.seen, cell.typed = shown(answer.decode(errors="replace"), 90), str(status)
    cell.lost = "nothing"
    cell.check(status in (403, 415, 421), "a page in a browser reaches it")
    return cell.done()


def abandoned(kind, work):
    """Clients that go away in the middle of a body, or before the answer."""
    cell = Cell(kind.title, "200 abandoned requests", "in_flight back to 0 within 10 s; requests answered")
    with kind.start(work) as server:
        kind.good(server)
        descriptors = server.descriptors()
        for number in range(200):
            head, body = kind.request(server)
            with server.connect(5) as stream:
                if number % 3 == 0:
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.sendall(head + (body[: len(body) // 2] if number % 2 else body))
        begun = time.monotonic()
        # Some may have been accepted and not looked at yet: none is in flight when there is none a while later.
        calm = 0
        while calm < 3 and time.monotonic() - begun < 20:
            left = server.metric("in_flight")
            calm = calm + 1 if left <= 1 else 0
            time.sleep(0.2)
        cell.told_s = round(time.monotonic() - begun, 1)
        more = server.descriptors() - descriptors
        cell.seen = f"in_flight {left:.0f}, descriptors {more:+d}"
        cell.counted = f"cancelled {server.metric('cancelled_total'):.0f}, errors {server.metric('errors_total'):.0f}"
        cell.lost = "nothing" if kind.good(server) else "the server"
        # `/metrics` itself may count as one.
        cell.check(left <= 1 and cell.told_s <= 10, "requests stay in flight")
        cell.check(more <= 5, "descriptors stay open")
        cell.check(cell.lost == "nothing", "the server answers no more")
    return cell.done()


def unread(kind, work):
    """Clients that ask for much and read nothing."""
    cell = Cell(kind.title, "40 large answers that nobody reads", "requests answered, /healthz within 2 s")
    with kind.start(work) as server:
        head, text = kind.request(server, json.dumps(kind.large).encode())
        with held(server, 40, head + text), Pulse(server) as pulse:
            time.sleep(5)
            good = kind.good(server)
        cell.seen = f"/healthz at worst {pulse.worst:.2f} s, memory {server.resident_mib():.0f} MiB"
        cell.lost = "nothing" if good else "a request"
        cell.check(good and pulse.missed == 0 and pulse.worst <= 2, "others wait for them")
    return cell.done()


def settled(server):
    """The number of descriptors once connections that ended are closed."""
    seen, same, begun = server.descriptors(), 0, time.monotonic()
    while same < 5 and time.monotonic() - begun < 10:
        time.sleep(0.2)
        now = server.descriptors()
        seen, same = now, same + 1 if now == seen else 0
    return seen


def dripped(kind, work):
    """A client that takes a large answer bit by bit."""
    cell = Cell(kind.title, "an answer taken at 2 KiB a second", f"closed within {DRIP_S} s; requests answered")
    with kind.start(work) as server:
        large = kind.large | {"queries": kind.large["queries"] * 16}
        status, answer = server.ask("POST", kind.path, large, timeout=60)
        cell.check(status == 200 and len(answer) > SYSTEMS_HOLD, f"nothing is held up: {status}, {len(answer)} bytes")
        before = settled(server)
        head, text = kind.request(server, json.dumps(large).encode())
        stream = socket.socket()
        # So that the systems' buffers take little of the answer.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(5)

        def sip():
            try:
                return len(stream.recv(2048))
            except OSError:
                # What a server that closed left over may be thrown away.
                return 0

        with stream:
            stream.connect(("127.0.0.1", server.port))
            stream.sendall(head + text)
            begun, taken = time.monotonic(), sip()
            # The server has it closed when its descriptor is gone: the client still gets what the systems hold.
            while (kept := server.descriptors() > before) and time.monotonic() - begun < 2 * DRIP_S:
                time.sleep(1)
                taken += sip()
            cell.told_s = round(time.monotonic() - begun, 1)
        cell.seen = f"{'kept' if kept else 'closed'} after {taken >> 10} KiB"
        cell.typed = "kept" if kept else "closed"
        cell.lost = "nothing" if kind.good(server) else "the server"
        cell.check(not kept and cell.told_s <= DRIP_S, "a drip keeps an answer's memory")
        cell.check(cell.told_s >= DRIP_LEAST_S, "it closed before the client was slow")
        cell.check(cell.lost == "nothing", "the server answers no more")
    return cell.done()


def whole(answer):
    """Whether an answer that began came to its end."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    if not gap:
        return False
    if length:
        return len(body) >= int(length[1])
    return b"transfer-encoding: chunked" not in head.lower() or body.endswith(b"0\r\n\r\n")


def outcome(kind, server):
    """The status of one request, or what came of it: `refused`, `nothing` of an answer, `torn` within one, `late`, or the system's error."""
    head, body = kind.request(server)
    answer = bytearray()
    try:
        with server.connect(15) as stream:
            try:
                stream.sendall(head.removesuffix(b"\r\n") + b"connection: close\r\n\r\n" + body)
            except (BrokenPipeError, ConnectionResetError):
                # A server may answer and close before it has read everything.
                pass
            while piece := stream.recv(1 << 16):
                answer += piece
    except ConnectionRefusedError:
        return "refused"
    except (BrokenPipeError, ConnectionResetError):
        pass
    except TimeoutError:
        return "late"
    except OSError as error:
        return str(error)
    if not answer:
        return "nothing"
    status = bytes(answer).split(b" ", 2)[1:2]
    return int(status[0]) if whole(bytes(answer)) and status and status[0].isdigit() else "torn"


def ended(kind, work):
    """SIGTERM while requests come in."""
    cell = Cell(kind.title, "SIGTERM under load", f"rc 0 within {STOP_S} s; every request answered or refused, no answer torn")
    with kind.start(work) as server:
        outcomes, again, going = [], [], [True]

        def load():
            while going[0]:
                for _ in range(TRIES):
                    found = outcome(kind, server)
                    if found != "nothing":
                        break
                    # A connection in the backlog when the port closes is reset: it was never accepted.
                    again.append(found)
                outcomes.append(found)
                time.sleep(0.01)

        threads = [threading.Thread(target=load, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        rc, took = server.stop()
        going[0] = False
        for thread in threads:
            thread.join(20)
        lost = [found for found in outcomes if isinstance(found, str) and found != "refused"]
        cell.told_s = round(took, 1)
        cell.seen = f"rc {rc}; " + shown(server.log.read_text().splitlines()[-1], 100)
        cell.counted = f"{outcomes.count(200)} answered, {outcomes.count(503)} refused, {len(again)} asked again"
        cell.lost = "nothing" if not lost else f"{len(lost)} requests: {', '.join(sorted(set(lost)))}"
        cell.check(rc == 0 and took <= STOP_S, "it did not end in time")
        cell.check(not lost, "answers were torn, late, or never came")
    return cell.done()


def killed(kind, work):
    cell = Cell(kind.title, "kill -9, started again on its port", "ready within 20 s, answers as before")
    with kind.start(work) as server, held(server, 20):
        before = server.ask("POST", kind.path, kind.body)[0]
        port = server.port
        server.stop(signal.SIGKILL)
        with kind.start(work, port=port) as again:
            cell.told_s = round(again.ready_s, 1)
            after = again.ask("POST", kind.path, kind.body)[0]
    cell.seen, cell.typed, cell.lost = f"{before}, then {after}", "killed", "nothing"
    cell.check(before == after == 200 and cell.told_s <= 20, "it does not come back")
    return cell.done()


def port_taken(kind, work):
    cell = Cell(kind.title, "two servers on one port", "the second ends within 10 s, names the port and the fix")
    with kind.start(work) as server:
        second = run("serve", *kind.arguments, "--addr", f"127.0.0.1:{server.port}", timeout=30)
        cell.told_s = round(second.seconds, 1)
        cell.seen, cell.typed = f"rc {second.rc}; {shown(second.error)}", "in use" if "in use" in second.error else "other"
        cell.lost = "nothing" if kind.good(server) else "the first"
        cell.check(second.rc > 0 and str(server.port) in second.error and "--addr" in second.error, "no clear error")
        cell.check(second.seconds <= 10 and cell.lost == "nothing", "too late, or the first is gone")
    return cell.done()


def clock(kind, work):
    cell = Cell(kind.title, "clock jumps a day forward and back", "requests answered, no session lost")
    library = next((path for path in FAKETIME if os.path.exists(path)), None)
    if library is None:
        return cell.leave_out("libfaketime")
    file = work / f"clock-{kind.name}.rc"
    file.write_text("+0")
    with kind.start(work, env=faked(library, file)) as server:
        opened = server.ask("POST", kind.path, {**kind.body, "episode_id": "kept"} if kind.name == "env" else kind.body)[0]
        outcomes = [opened]
        for jump in ("+86400", "-86400"):
            file.write_text(jump)
            time.sleep(0.5)
            if kind.name == "env":
                outcomes.append(server.ask("GET", "/state?episode_id=kept")[0])
            outcomes.append(200 if kind.good(server) else None)
    cell.seen, cell.typed = f"answers {outcomes}", "no fault"
    cell.lost = "nothing" if set(outcomes) == {200} else "a request"
    cell.check(set(outcomes) == {200}, "a request was not answered")
    return cell.done()


DEAD_UPSTREAM = """seed = 1
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 40
dev_questions = 0
test_questions = 0
[data.files]
train = "{questions}"
[retriever.remote]
kind = "search-r1"
url = "{url}"
[retriever.remote.http]
timeout_ms = 1000
attempts = 3
backoff_ms = 100
deadline_ms = 5000
[environment]
id = "search-r1"
[reward]
em = 1.0
"""


def upstream_gone(kind, work, index, world):
    """A server whose own retriever is gone after it started."""
    cell = Cell(kind.title, "its retriever is gone", "503 that names the cause within 20 s; healthy again when it is back")
    with open(world / "search-r1" / "wiki.jsonl") as lines:
        peer = Peer(Passages([json.loads(line) for line, _ in zip(lines, range(50))]))
    remote = work / f"{kind.name}-remote.toml"
    remote.write_text(
        f'kind = "search-r1"\nurl = "{peer.url}"\n[http]\ntimeout_ms = 1000\nattempts = 3\nbackoff_ms = 100\ndeadline_ms = 5000\n'
    )
    arguments = ["retriever", "--remote", remote]
    if kind.name == "env":
        config = work / "env-remote-config.toml"
        config.write_text(DEAD_UPSTREAM.format(questions=world / "search-r1" / "train.jsonl", url=peer.url))
        arguments = ["env", "--config", config]

    def ask(server):
        if kind.name == "retriever":
            return server.ask("POST", "/retrieve", kind.body)
        server.ask("POST", "/reset", {"seed": 7, "episode_id": "e"})
        return server.ask("POST", "/step", {"episode_id": "e", "action": {"text": "<search>river</search>"}})

    with Server(work, f"{kind.name}-upstream", *arguments) as server:
        good, _ = ask(server)
        peer.down()
        begun = time.monotonic()
        status, answer = ask(server)
        cell.told_s = round(time.monotonic() - begun, 1)
        peer.up()
        again, _ = ask(server)
    peer.close()
    cell.seen, cell.typed = shown(answer.decode(errors="replace"), 140), str(status)
    cell.lost = "nothing" if again == 200 else "the server"
    cell.check(good == 200 and status in (502, 503) and cell.told_s <= 20, "not told, or too late")
    cell.check(b"retriever" in answer or str(peer.port).encode() in answer, "the cause is not named")
    cell.check(again == 200, "it does not come back")
    return cell.done()


def cells(work, index, world):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    # Servers have the same limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    found = []
    for kind in kinds(index, world):
        drip = lambda server, kind=kind: kind.request(server, b"{", 1000)[0] + b"{"
        found += [
            lambda kind=kind, drip=drip: slow(kind, work, "slow body, a byte a second", BODY_S, 40, drip, b" "),
            lambda kind=kind: slow(kind, work, "half a header, then silence", HEADER_S, 100, half_header, None),
            lambda kind=kind: slow(kind, work, "header, a byte a second", HEADER_S, 100, half_header, b"x"),
            lambda kind=kind: exhausted(kind, work),
            lambda kind=kind: flood(kind, work),
            lambda kind=kind: refused(kind, work),
            lambda kind=kind: abandoned(kind, work),
            lambda kind=kind: ended(kind, work),
            lambda kind=kind: killed(kind, work),
            lambda kind=kind: port_taken(kind, work),
            lambda kind=kind: clock(kind, work),
        ]
        if kind.large is not None:
            found.append(lambda kind=kind: unread(kind, work))
            found.append(lambda kind=kind: dripped(kind, work))
        if kind.name != "policy":
            found.append(lambda kind=kind: upstream_gone(kind, work, index, world))
    return found
