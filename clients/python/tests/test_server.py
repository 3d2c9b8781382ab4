"""Environments in Python: their server, asked as rollouts ask it, and in rollouts of the program."""

import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import BINARY

import forage.http
from forage import Client, Question, Reply
from forage.errors import Conflict, Infra, Invalid, SessionLost, Unreachable
from forage.http import Http
from forage.server import _Handler, _Server

ENVIRONMENT = """
import asyncio, json, multiprocessing, os, random, re, subprocess, time
import forage


class Guess(forage.Environment):
    id = "mine/guess-v0"
    max_turns = 3
    stop = ("</answer>", "</stop>")
    max_turn_tokens = 24
    max_episode_tokens = 320

    @classmethod
    def questions(cls, split, count, seed):
        draw = random.Random(f"{split} {seed}")
        if seed == 13:
            yield {"id": "1", "question": "Who?", "golds": ["Ada"]}
        for place in range(count):
            yield forage.Question(f"{split}-{place}", f"What is in box {place} of {split}?", [str(draw.randint(1, 100))])

    def reset(self, question, seed):
        self.number, self.seed = int(question.golds[0]), seed
        return f"{question.text} <answer>7</answer>?\\n"

    def step(self, turn):
        found = re.search(r"<answer>\\s*(-?\\w+)\\s*</answer>", turn)
        if "crash" in turn:
            raise ValueError("the number is gone")
        if "cancelled" in turn:
            raise asyncio.CancelledError("no time is left")
        if turn.startswith('"'):
            return forage.Reply.call("read", json.loads(turn), read=json.loads(turn))
        if "wrong type" in turn:
            return turn
        if "starts others" in turn:
            fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            fork.start()
            other = subprocess.Popen(["sleep", "60"])
            time.sleep(0.2)
            fork.terminate()
            other.terminate()
            fork.join(10)
            return forage.Reply(f"{fork.exitcode} {other.wait(10)}")
        if "no text" in turn:
            return forage.Reply(7)
        if "not finite" in turn:
            return forage.Reply("x", reward=float("nan"))
        if "too large" in turn:
            return forage.Reply("x", reward=10**400)
        if "beyond" in turn:
            return forage.Reply("x", reward=1e39)
        if "no bool" in turn:
            return forage.Reply("x", done=1)
        if "no JSON" in turn:
            return forage.Reply.call("guess", "x", numbers={7})
        if "no prefix" in turn:
            return forage.Reply("x", forced_prefix=7)
        if "stop first" in turn:
            return forage.Reply("x", forced_prefix="</stop> ")
        if "seed" in turn:
            return forage.Reply(str(self.seed), forced_prefix="So ")
        if not found or not found[1].isdigit():
            return forage.Reply.invalid("no number", "\\nA number!\\n")
        if int(found[1]) == self.number:
            return forage.Reply.answer(self.number, int(found[1]) == self.number)
        return forage.Reply.call("guess", "\\nNo.\\n", -0.25, number=int(found[1]))

    def close(self):
        with open(os.environ["CLOSED"], "a") as file:
            file.write("closed\\n")


forage.serve(Guess, port=0)
"""
TASK = Question("1", "What is in the box?", ("42",)).task()


@contextmanager
def running(folder: Path, *, alone: bool = False) -> Iterator[tuple[str, subprocess.Popen]]:
    """A server, by its address and its process, that was started as forage starts it, or `alone`."""
    script = folder / "guess.py"
    script.write_text(ENVIRONMENT)
    source = str(Path(sys.modules["forage"].__file__).parents[1])
    variables = os.environ | {"FORAGE_ENV_COMMAND": "1", "PYTHONPATH": source, "CLOSED": str(folder / "closed")}
    if alone:
        del variables["FORAGE_ENV_COMMAND"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], text=True, env=variables, **pipes) as server:
        try:
            line = server.stdout.readline()
            found = re.fullmatch(r"listening on (http://127.0.0.1:\d+), mine/guess-v0\n", line)
            assert found, line
            yield found[1], server
        finally:
            server.kill()


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """The address of a server that was started as forage starts it."""
    with running(folder) as (address, server):
        yield address
        server.stdin.close()
        assert server.wait(20) == 0, "it ends with whoever has started it"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("guess")) as address:
        yield address


@pytest.fixture
def ask(url: str) -> Http:
    return Http(url, None, 20.0, 0.0)


def reset(ask: Http, name: str, **changes: object) -> dict:
    return ask.post("/reset", {"episode_id": name, "seed": 7, "task": TASK} | changes)


def step(ask: Http, name: str, text: str, request: str | None = None, **action: object) -> dict:
    return ask.post("/step", {"episode_id": name, "action": {"text": text} | action, "request_id": request})


def test_an_episode(ask):
    begun = reset(ask, "a")
    assert begun["observation"]["text"] == "What is in the box? <answer>7</answer>?\n"
    assert (begun["reward"], begun["done"]) == (None, False)
    missed = step(ask, "a", "<answer>41</answer>")
    assert (missed["observation"]["text"], missed["reward"], missed["done"]) == ("\nNo.\n", -0.25, False)
    call = {"tool": "guess", "arguments": {"number": 41}, "queries": [], "shown": []}
    assert missed["observation"]["info"]["kind"] == {"kind": "calls", "calls": [call]}
    end = step(ask, "a", "<answer>42</answer> and what nobody reads <answer>1</answer>")
    assert (end["reward"], end["done"], end["observation"]["terminated"]) == (1.0, True, True)
    assert type(end["reward"]) is float
    assert end["observation"]["info"]["kind"] == {"kind": "answer", "answer": "42"}
    with pytest.raises(Conflict):
        step(ask, "a", "<answer>42</answer>")


def test_limits_truncate(ask):
    reset(ask, "limit")
    for done in (False, False, True):
        answer = step(ask, "limit", "<answer>1</answer>")
        assert (answer["done"], answer["observation"]["truncated"]) == (done, done)
    assert answer["observation"]["text"] == ""
    reset(ask, "context")
    assert step(ask, "context", "<answer>1</answer>", finish="context")["observation"]["truncated"]


def test_a_turn_that_is_sent_again_is_taken_once(ask):
    reset(ask, "again")
    first = step(ask, "again", "<answer>1</answer>", "turn-1")
    assert step(ask, "again", "<answer>1</answer>", "turn-1") == first
    last = step(ask, "again", "<answer>42</answer>", "turn-2")
    assert (last["observation"]["turn"], last["done"]) == (2, True)
    assert step(ask, "again", "<answer>42</answer>", "turn-2") == last


def test_what_the_policy_writes_is_no_fault(ask):
    reset(ask, "policy")
    for text in ("", "<answer>" * 1000 + "\x00\ud7ff"):
        answer = step(ask, "policy", text)
        assert answer["observation"]["info"]["kind"] == {"kind": "invalid", "fault": "no number"}


def test_half_a_surrogate_pair_is_marked(ask):
    reset(ask, "half")
    answer = step(ask, "half", r'"\ud800, \ud83d\ude00"')
    assert answer["observation"]["text"] == "\ufffd, \U0001f600"
    assert answer["observation"]["info"]["kind"]["calls"][0]["arguments"] == {"read": "\ufffd, \U0001f600"}


def test_a_turn_has_a_limit_and_one_beyond_it_costs_no_episode(ask):
    most = ask.get("/info")["limits"]["action_bytes"]
    reset(ask, "long")
    with pytest.raises(Invalid, match=f"has {most + 1} bytes, at most {most}"):
        step(ask, "long", "é" * (most // 2) + "x")
    assert not step(ask, "long", "x" * most)["done"]
    assert step(ask, "long", "<answer>42</answer>")["done"]


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ("crash", r"guess.py:\d+ in step: ValueError: the number is gone"),
        ("cancelled", r"guess.py:\d+ in step: asyncio.exceptions.CancelledError: no time is left"),
        ("wrong type", r"guess.py:\d+: step returned str; return a forage.Reply"),
        ("no text", r"guess.py:\d+ in step: TypeError: text is 7; it must be a str"),
        ("not finite", r"guess.py:\d+ in step: ValueError: reward is nan; it must be a finite number"),
        ("too large", r"reward is 10{400}; it must be a finite number"),
        ("beyond", r"reward is 1e\+39; it must be a finite number"),
        ("no bool", r"guess.py:\d+ in step: TypeError: done is 1; it must be a bool"),
        ("no prefix", "forced_prefix is 7; it must be a str"),
        ("no JSON", r"guess.py:\d+ in step: TypeError: kind is not JSON: Object of type set is not JSON serializable"),
    ],
)
def test_a_fault_ends_the_episode(ask, turn, told):
    reset(ask, turn)
    with pytest.raises(Infra, match=f"^question '1': .*{told}") as caught:
        step(ask, turn, turn, "turn-1")
    assert caught.value.cause == "environment"
    with pytest.raises(Conflict):
        step(ask, turn, "<answer>42</answer>")
    assert not reset(ask, turn)["done"], "the name is free again"


def test_seed_and_forced_prefix(ask):
    reset(ask, "seed", seed=2**64 - 1)
    answer = step(ask, "seed", "seed")
    assert (answer["observation"]["text"], answer["observation"]["forced_prefix"]) == (str(2**64 - 1), "So ")
    assert step(ask, "seed", "<answer>42</answer>")["done"]
    reset(ask, "seed")
    assert step(ask, "seed", "stop first")["observation"]["forced_prefix"] == "</stop> "
    assert step(ask, "seed", "<answer>42</answer>")["done"], "a stop string in the prefix ends no turn"


def test_questions_and_limits(ask):
    asked = {"split": "dev", "count": 3, "seed": 5}
    tasks = ask.post("/questions", asked)["tasks"]
    assert tasks == ask.post("/questions", asked)["tasks"]
    assert [(task["id"], task["split"], task["data_source"]) for task in tasks] == [
        (f"dev-{place}", "dev", "mine/guess-v0") for place in range(3)
    ]
    assert 1 <= int(tasks[0]["golds"][0]) <= 100
    with pytest.raises(Infra, match=r"^guess\.py:\d+: questions returned dict; return forage\.Question"):
        ask.post("/questions", asked | {"seed": 13})
    info = ask.get("/info")
    assert info["takes_tasks"]
    assert (info["spec"]["max_turns"], info["spec"]["stop"]) == (3, ["</answer>", "</stop>"])


def test_an_interrupted_request_costs_no_other(ask):
    ask.get("/info")
    # Sent, and its answer never read: as Ctrl-C in a notebook leaves it.
    ask._kept.connection.request("GET", "/info")
    assert ask.get("/info")["takes_tasks"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_has_a_connection_of_its_own(ask):
    ask.get("/info")
    ours = ask._kept.connection.sock.getsockname()
    results = multiprocessing.get_context("fork").SimpleQueue()

    def asked() -> None:
        ask.get("/info")
        results.put(ask._kept.connection.sock.getsockname())
        ask.close()

    child = multiprocessing.get_context("fork").Process(target=asked)
    child.start()
    assert results.get() != ours
    child.join(20)
    # Whatever the child has done, ours is as it was.
    ask.get("/info")
    assert ask._kept.connection.sock.getsockname() == ours


def test_episodes_are_closed_however_they_end(tmp_path):
    with started(tmp_path) as address:
        ask = Http(address, None, 20.0, 0.0)
        closed = tmp_path / "closed"
        for name in "abc":
            reset(ask, name)
        step(ask, "a", "<answer>42</answer>")
        assert closed.read_text().count("closed") == 1
        ask.post("/close", {"episode_id": "b"})
        assert closed.read_text().count("closed") == 2
        with pytest.raises(SessionLost):
            ask.post("/close", {"episode_id": "never"})
    assert closed.read_text().count("closed") == 3


def test_a_scheduler_that_ends_a_job_leaves_its_environment_to_the_run(tmp_path):
    with running(tmp_path) as (address, server):
        ask = Http(address, None, 20.0, 0.0)
        reset(ask, "a")
        server.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        # Those that it starts are ended by it all the same.
        assert step(ask, "a", "starts others")["observation"]["text"] == f"{-signal.SIGTERM} {-signal.SIGTERM}"
        assert step(ask, "a", "<answer>42</answer>")["done"]
        server.stdin.close()
        assert server.wait(20) == 0


def test_a_server_by_itself_closes_its_episodes_when_it_is_told_to_end(tmp_path):
    with running(tmp_path, alone=True) as (address, server):
        reset(Http(address, None, 20.0, 0.0), "a")
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    assert (tmp_path / "closed").read_text() == "closed\n"


def test_refusals(ask, url):
    for body in ({"episode_id": "x", "seed": 1}, {"episode_id": 1, "seed": 1, "task": TASK}):
        with pytest.raises(Invalid):
            ask.post("/reset", body)
    with pytest.raises(Invalid, match="golds is 7"):
        reset(ask, "x", task=TASK | {"golds": 7})
    with pytest.raises(Invalid, match="there is no POST /nothing"):
        ask.post("/nothing", {})
    # A client brings no question, and asks for more than rollouts do.
    client = Client(url)
    for asked in (client.reset, lambda: client.make(2), lambda: list(client.tasks())):
        with pytest.raises(Invalid, match="forage serve env --config CONFIG --env-command COMMAND"):
            asked()
    plain = http.client.HTTPConnection(url.removeprefix("http://"))
    for headers, expected in (
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json", "Origin": "http://elsewhere"}, 403),
        ({"Content-Type": "application/json"}, 422),
    ):
        plain.request("POST", "/reset", "no JSON", headers)
        answer = plain.getresponse()
        assert (answer.status, set(json.loads(answer.read()))) == (expected, {"code", "cause", "detail"})


def answers(url: str, sent: bytes) -> list[int]:
    """The statuses of all answers to these bytes, until the server closes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(sent)
        received = b""
        try:
            while part := connection.recv(1 << 16):
                received += part
        except ConnectionResetError:
            pass
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", received)]


def posted(*lines: str, body: str = "") -> bytes:
    return "\r\n".join(["POST /reset HTTP/1.1", *lines, "Content-Type: application/json", "", body]).encode()


def test_what_is_refused_before_it_is_read(url):
    here = url.removeprefix("http://")
    # A request that the server would take, in the body of one that it refuses.
    hidden = f"GET /info HTTP/1.1\r\nHost: {here}\r\nConnection: close\r\n\r\n"
    length = f"Content-Length: {len(hidden)}"
    for lines, status in (
        ([f"Host: {here}", "Content-Length: -1"], 400),
        ([f"Host: {here}", "Content-Length: many"], 400),
        ([f"Host: {here}", "Content-Length: \u0665"], 400),
        ([f"Host: {here}", f"Content-Length: {'9' * 5000}"], 413),
        ([f"Host: {here}", "Content-Length: 8388609"], 413),
        ([f"Host: {here}", length, "Origin: http://127.0.0.1"], 403),
        ([f"Host: {here}", "Transfer-Encoding: chunked"], 411),
        ([f"Host: {here}", "Transfer-Encoding: gzip", length], 411),
        (["Host: evil.example", length], 403),
        (["Host: 127.0.0.1.evil.example:80", length], 403),
    ):
        assert answers(url, posted(*lines, body=hidden)) == [status], lines
    for host in (here, "localhost:1", "LOCALHOST", "127.9.9.9", "[::1]:80"):
        assert answers(url, posted(f"Host: {host}", "Connection: close", "Content-Length: 2", body="{}")) == [422], host


def test_a_deep_body_is_no_json(url, ask):
    body = "[" * 200_000
    deep = posted("Host: localhost", "Connection: close", f"Content-Length: {len(body)}", body=body)
    assert answers(url, deep) == [422]
    assert ask.get("/info")["takes_tasks"]


def test_an_answer_without_an_end_is_not_read(monkeypatch):
    monkeypatch.setattr(forage.http, "_ANSWER_BYTES", 1 << 16)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
                try:
                    while True:
                        connection.sendall(b"1," * 4096)
                except OSError:
                    pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(Unreachable, match="the answer has more than 65536 bytes"):
            Http(f"http://127.0.0.1:{server.getsockname()[1]}", None, 20.0, 0.0).get("/info")
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("beginning", [b"", b'{"spec": {'])
def test_an_answer_that_breaks_off_is_a_fault_of_the_connection(beginning):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + beginning)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        left = 100 - len(beginning)
        with pytest.raises(Unreachable, match=f"{len(beginning)} bytes read, {left} more expected"):
            Http(f"http://127.0.0.1:{server.getsockname()[1]}", None, 20.0, 0.0).get("/info")
        thread.join(20)
        assert not thread.is_alive()


def test_a_token_over_plain_http_to_another_machine_is_told():
    for url in ("http://10.0.0.5:8000", "http://localhost.example"):
        with pytest.warns(UserWarning, match="readable on the way"):
            Http(url, "secret", 1.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for url in ("https://example.org", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"):
            Http(url, "secret", 1.0, 0.0)
        Http("http://10.0.0.5:8000", None, 1.0, 0.0)


def refused(script: str, *, port: int | None = None) -> str:
    """What a script says that ends before it serves."""
    source = str(Path(sys.modules["forage"].__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": source, "FORAGE_ENV_COMMAND": "1"}
    if port is not None:
        del variables["FORAGE_ENV_COMMAND"]
    command = [sys.executable, "-c", script]
    ran = subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    return ran.stderr


CLASS = """
import forage
class Staff{base}:
    {attributes}
    def reset(self, question, seed):
        return "Who?"
    def step(self, turn):
        return forage.Reply.answer("Ada")
forage.serve(Staff{called})
"""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (CLASS.format(base="", attributes="", called="()"), "serve got an instance of Staff; give it the class"),
        (CLASS.format(base="", attributes="max_turns = '4'", called=""), "Staff.max_turns is '4'; it must be an int"),
        (CLASS.format(base="", attributes="stop = 7", called=""), "Staff.stop is 7; it must be a str or a tuple"),
        ("import forage\nforage.serve(forage.Environment)", "has no `reset`; write `def reset(self, question, seed)`"),
        (
            "import forage\nclass A:\n def reset(self): ...\nforage.serve(A)",
            "A has no `step`; write `def step(self, turn)`",
        ),
    ],
)
def test_what_is_no_environment_is_refused_before_it_is_served(script, told):
    last = refused(script).splitlines()[-1]
    assert last.startswith("TypeError: ")
    assert told in last


def test_a_port_that_is_taken_is_told_in_a_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = CLASS.format(base="", attributes="", called=f", port={port}")
        told = refused(script, port=port)
    assert re.fullmatch(rf"port {port} of 127\.0\.0\.1 is in use; .*\n", told), told


@contextmanager
def served(make: type) -> Iterator[tuple[Http, _Server]]:
    server = _Server(("127.0.0.1", 0), make)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Http(f"http://127.0.0.1:{server.server_port}", None, 20.0, 0.0), server
    finally:
        server.shutdown()
        thread.join(20)
        server.end()


class Bare:
    """Not derived from `Environment`, and without `close`."""

    max_turns = 2

    def reset(self, question, seed):
        return "Who?"

    def step(self, turn):
        if "crash" in turn:
            raise ValueError(turn)
        if "exit" in turn:
            sys.exit("no licence")
        return Reply.answer("Ada")


def test_reset_and_step_are_enough(capsys):
    with served(Bare) as (ask, server):
        assert server.spec["id"] == "mine/environment-v0"
        reset(ask, "bare")
        assert step(ask, "bare", "Ada")["done"]
        with pytest.raises(Infra, match="has no `questions`"):
            ask.post("/questions", {"split": "dev", "count": 1, "seed": 5})
    assert "close" not in capsys.readouterr().err


def test_an_episode_that_cannot_begin_names_its_question():
    class Once(Bare):
        made = 0

        def __init__(self):
            type(self).made += 1
            if self.made > 1:
                raise OSError("no place is left")

    with (
        served(Once) as (ask, _),
        pytest.raises(Infra, match=r"^question '1': .*in __init__: OSError: no place is left"),
    ):
        reset(ask, "a")


def test_an_episode_that_ends_while_it_is_begun_anew_keeps_its_place():
    with served(Bare) as (ask, server):
        reset(ask, "a")
        session = server._sessions["a"]
        with session.lock:
            again = threading.Thread(target=reset, args=(Http(ask.base_url, None, 20.0, 0.0), "a"))
            again.start()
            time.sleep(0.2)
            server._end(session)
        again.join(20)
        assert list(server._sessions) == ["a"]
        assert server._sessions["a"] is not session
        assert step(ask, "a", "Ada")["done"]


def test_a_fault_is_shown_once_and_counted(capsys):
    with served(Bare) as (ask, _):
        for place in range(5):
            reset(ask, f"{place}")
            with pytest.raises(Infra, match=rf"test_server\.py:\d+ in step: ValueError: crash {place}"):
                step(ask, f"{place}", f"crash {place}")
    told = capsys.readouterr().err
    assert told.count("Traceback") == 1
    assert re.search(r"^ValueError at test_server\.py:\d+ in step: 5 times$", told, re.MULTILINE), told


def test_code_that_ends_its_thread_is_a_fault(capsys):
    with served(Bare) as (ask, _):
        reset(ask, "a")
        with pytest.raises(Infra, match=r"test_server\.py:\d+ in step: SystemExit: no licence"):
            step(ask, "a", "exit")
    assert "SystemExit: no licence" in capsys.readouterr().err


def test_a_connection_that_is_idle_is_closed_without_a_word(monkeypatch, capsys):
    monkeypatch.setattr(_Handler, "timeout", 0.1)
    with served(Bare) as (ask, _):
        ask.get("/info")
        assert ask._kept.connection.sock.recv(1) == b""
        assert ask.get("/info")["takes_tasks"]
    assert capsys.readouterr().err == ""


def test_a_client_that_leaves_is_no_fault(capsys):
    with served(Bare) as (_, server):
        try:
            raise ConnectionResetError(104, "Connection reset by peer")
        except ConnectionResetError:
            server.handle_error(None, ("127.0.0.1", 1))
    assert capsys.readouterr().err == ""


def test_a_question_may_have_no_accepted_answer():
    """Whether the rewards do without one is for the program to say."""
    assert Question("1", "Who?", "Ada").golds == ("Ada",)
    assert Question("1", "Who?").task()["golds"] == ()
    with served(Bare) as (ask, _):
        assert not reset(ask, "open", task=TASK | {"golds": []})["done"]
        assert step(ask, "open", "Ada")["done"]
    assert Question.read(TASK | {"hops": 2, "oracle": []}).task() == TASK
    assert Reply().kind["kind"] == "calls"


CONFIG = """
seed = 1
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 8
dev_questions = 0
test_questions = 40
[data.own]
seed = 7
[environment]
id = "external"
[reward]
return = 1.0
"""


def evaluated(folder: Path, policy: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "guess.toml").write_text(CONFIG)
    (folder / "guess.py").write_text(ENVIRONMENT)
    source = str(Path(sys.modules["forage"].__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": source, "CLOSED": str(folder / "closed")}
    command = [
        BINARY,
        "eval",
        "guess.toml",
        "--env-command",
        f"{sys.executable} guess.py",
        "--policy",
        policy,
        "--json",
    ]
    return subprocess.run([*command, *more], cwd=folder, env=variables, capture_output=True, text=True)


@pytest.mark.skipif(not BINARY, reason="there is no forage program; write its path to FORAGE_BIN")
def test_rollouts_play_it(tmp_path):
    ran = evaluated(tmp_path, "oracle", "--env-workers", "2", "--out", "episodes.jsonl")
    assert ran.returncode == 0, ran.stderr
    episodes = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [episode["reward"] for episode in episodes] == [1.0] * 40
    assert {episode["episode"]["environment"] for episode in episodes} == {"mine/guess-v0"}
    command = ["--policy", "oracle", "--env-command", f"{sys.executable} guess.py"]
    replayed = [BINARY, "replay", "episodes.jsonl", "--config", "guess.toml", *command]
    source = str(Path(sys.modules["forage"].__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": source, "CLOSED": str(tmp_path / "closed")}
    subprocess.run(replayed, cwd=tmp_path, env=variables, check=True, capture_output=True)
    shown = [BINARY, "play", "guess.toml", *command]
    ran = subprocess.run(shown, cwd=tmp_path, env=variables, check=True, capture_output=True, text=True)
    assert "\nreward 1.000\n" in ran.stdout


@pytest.mark.skipif(not BINARY, reason="there is no forage program; write its path to FORAGE_BIN")
def test_rollouts_mask_its_faults(tmp_path):
    ran = evaluated(tmp_path, "constant:crash")
    assert ran.returncode == 1
    assert re.search(r"guess.py:\d+ in step: ValueError: the number is gone", ran.stderr), ran.stderr
