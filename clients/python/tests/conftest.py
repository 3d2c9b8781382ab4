"""A real server, over a small generated world whose answers are known here."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

import forage
from forage import Client, program
from forage.server import _Server


def _program() -> str:
    try:
        return str(program())
    except FileNotFoundError:
        return ""


BINARY = _program()
QUESTIONS = 40


@dataclass(frozen=True)
class World:
    folder: Path
    golds: list[str]
    questions: list[str]

    @property
    def arguments(self) -> list[str]:
        wiki, questions = self.folder / "search-r1/wiki.jsonl", self.folder / "search-r1/train.jsonl"
        files = ["--corpus", str(wiki), "--format", "search-r1", "--questions", str(questions)]
        return ["search-r1", *files, "--limit", str(QUESTIONS)]

    def searched_then_answered(self, messages: list[dict]) -> str:
        """A policy's next turn: it searches for the question, then answers, and every second question right."""
        number, question = next(pair for pair in enumerate(self.questions) if pair[1] in messages[0]["content"])
        if len(messages) == 1:
            return f"I look. <search>{question}</search> and more"
        return f"<answer>{self.golds[number] if number % 2 else 'wrong'}</answer>"


def serving(*arguments: str, kind: str = "env") -> AbstractContextManager[str]:
    """The address of a server that runs as long as this is entered."""
    return forage.serving(kind, *arguments, "--drain-seconds", "0")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    if not BINARY:
        pytest.skip("there is no forage program; write its path to FORAGE_BIN")
    folder = tmp_path_factory.mktemp("world") / "world"
    subprocess.run([BINARY, "world", "--pages", "200", "--out", str(folder)], check=True, capture_output=True)
    rows = [json.loads(line) for line in (folder / "search-r1/train.jsonl").read_text().splitlines()[:QUESTIONS]]
    return World(folder, [row["golden_answers"][0] for row in rows], [row["question"] for row in rows])


@pytest.fixture(scope="session")
def url(world: World) -> Iterator[str]:
    with serving(*world.arguments) as address:
        yield address


@pytest.fixture
def client(url: str) -> Client:
    return Client(url)


DEAD = """
seed = 1
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
url = "{retriever}"
[retriever.remote.http]
attempts = 1
timeout_ms = 500
[environment]
id = "search-r1"
[environment.settings]
prompt = "short"
[reward]
em = 1.0
"""


@pytest.fixture(scope="session")
def index(world: World) -> Path:
    """An index of the world."""
    folder, corpus = world.folder / "index", str(world.folder / "search-r1/wiki.jsonl")
    build = [BINARY, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", str(folder)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def retriever_url(index: Path) -> Iterator[str]:
    with serving(str(index), kind="retriever") as address:
        yield address


@pytest.fixture(scope="session")
def dead_url(world: World, index: Path) -> Iterator[str]:
    """A server whose retriever was there when it started, and is gone."""
    config = world.folder / "dead.toml"
    with ExitStack() as stack:
        with serving(str(index), kind="retriever") as retriever:
            questions = world.folder / "search-r1/train.jsonl"
            config.write_text(DEAD.format(questions=questions, retriever=retriever))
            address = stack.enter_context(serving("--config", str(config)))
        yield address


class Paid(forage.Environment):
    """Pays a quarter for every turn, and three quarters for the last."""

    stop = ("</answer>", "</search>")

    @classmethod
    def questions(cls, split, count, seed):
        for place in range(count):
            yield forage.Question(f"{split}-{place}", f"Who lives in house {place} of {split}?", "Ada")

    def reset(self, question, seed):
        return f"{question.text}\n"

    def step(self, turn):
        if turn.endswith("</answer>"):
            return forage.Reply.answer("Ada", reward=0.75)
        return forage.Reply.call("search", "\nNo.\n", reward=0.25)


PAID = """
seed = 1
[policy]
checkpoint = "builtin:quickstart"
[data]
train_questions = 4
dev_questions = 0
test_questions = 4
[data.own]
seed = 7
[environment]
id = "external"
[environment.settings]
url = "http://127.0.0.1:{port}"
[reward]
return = 1.0
"""


@pytest.fixture(scope="session")
def paid_url(world: World) -> Iterator[str]:
    """A server whose environment pays turns, and whose reward adds up what it paid: a search and an answer are worth 1."""
    server = _Server(("127.0.0.1", 0), Paid)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    config = world.folder / "paid.toml"
    config.write_text(PAID.format(port=server.server_port))
    try:
        with serving("--config", str(config)) as address:
            yield address
    finally:
        server.shutdown()
        thread.join(20)
        server.end()


@pytest.fixture
def model() -> Iterator[SimpleNamespace]:
    """An endpoint of OpenAI's shape: answers `script(messages)`, and cuts the stop string off as OpenAI's engine does."""
    state = SimpleNamespace(script=None, asked=[])

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append(body)
            text = state.script(body["messages"])
            for stop in body["stop"]:
                text = text.split(stop)[0]
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
                "usage": usage,
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield state
        server.shutdown()
