"""Peers that fail on purpose: a Search-R1 server, a judge, a vLLM server and a hub, on plain sockets so that they can break HTTP
anywhere.

A peer answers well, and the same to the same request, until a fault is set; the fault then hits every request, or one in ten.
"""

import hashlib
import json
import random
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from program import FORAGE

# Longer than every limit that the cells set for the client.
STALL = 20.0
RARE = 10


def digest(value):
    return int.from_bytes(hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).digest(), "big")


# --- what a sound peer says


class Passages:
    """The retriever: hits that follow from the query alone."""

    def __init__(self, passages):
        self.passages = passages

    def answer(self, path, body):
        if path != "/retrieve":
            return None
        lists = []
        for query in body["queries"]:
            draw = random.Random(digest(query))
            chosen = draw.sample(self.passages, min(body["topk"], len(self.passages)))
            lists.append([{"document": passage, "score": 10.0 - place} for place, passage in enumerate(chosen)])
        return {"result": lists}


class Verdicts:
    """The judge: half of the answers are right."""

    def answer(self, path, body):
        if path != "/v1/chat/completions":
            return None
        draw = random.Random(digest(body["messages"]))
        verdict = json.dumps({"correct": draw.random() < 0.5, "approach": draw.randrange(101)})
        choice = {"message": {"role": "assistant", "content": verdict}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"total_tokens": 100}}


class Sampler:
    """vLLM: tokens that follow from prompt and seed, and the log-probabilities of texts under the weights that were pushed last."""

    def __init__(self):
        self.weights = None

    def answer(self, path, body):
        if path == "/v1/models":
            return {"data": [{"id": "policy", "max_model_len": 320}]}
        if path == "/collective_rpc":
            self.weights = body["kwargs"]["weights_path"]
        if path != "/v1/completions":
            # The steps of a push.
            return {}
        if "seed" not in body:
            return {"choices": self.probed(body["prompt"], body["max_tokens"])}
        draw = random.Random(digest([body["prompt"], body["seed"]]))
        count = min(body["max_tokens"], draw.randrange(4, 20))
        tokens = [draw.randrange(5, 1000) for _ in range(count)]
        logprobs = {"tokens": [], "token_logprobs": [-6.9] * count}
        ended = "length" if count == body["max_tokens"] else "stop"
        return {"choices": [{"text": "", "token_ids": tokens, "logprobs": logprobs, "finish_reason": ended}]}

    def probed(self, prompts, count):
        """Tokens behind each text, with their true log-probabilities: what a push is verified by."""
        tokens = [[random.Random(digest(prompt)).randrange(5, 1000) for _ in range(count)] for prompt in prompts]
        scores = self.scores([prompt + drawn for prompt, drawn in zip(prompts, tokens)])
        return [
            {"index": index, "text": "", "token_ids": drawn, "finish_reason": "length",
             "logprobs": {"tokens": [], "token_logprobs": score[-count:]}}
            for index, (drawn, score) in enumerate(zip(tokens, scores))
        ]

    def scores(self, texts):
        with tempfile.TemporaryDirectory() as folder:
            asked, told = Path(folder) / "texts.jsonl", Path(folder) / "scores.jsonl"
            lines = [json.dumps({"id": str(place), "tokens": tokens}) for place, tokens in enumerate(texts)]
            asked.write_text("".join(f"{line}\n" for line in lines))
            command = [FORAGE, "policy", "logprobs", "--model", self.weights, "--input", asked, "--output", told]
            subprocess.run(command, check=True, capture_output=True)
            return [json.loads(line)["logprobs"] for line in told.read_text().splitlines()]


# --- what a peer does when it fails; each gets the socket and the body of the sound answer


def head(status, length, more=""):
    return f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n".encode()


def status(code, more=""):
    def act(peer, stream, body):
        text = b'{"detail": "on purpose"}'
        stream.sendall(head(code, len(text), more) + text)

    return act


def say(text):
    def act(peer, stream, body):
        stream.sendall(head(200, len(text)) + text)

    return act


def hang(peer, stream, body):
    peer.wait(stream, STALL)


def slow_header(peer, stream, body):
    for byte in head(200, len(body)):
        stream.sendall(bytes([byte]))
        if peer.wait(stream, 0.1):
            return


def drip(peer, stream, body):
    """A body that would take minutes, a byte at a time."""
    stream.sendall(head(200, len(body)))
    for byte in body:
        stream.sendall(bytes([byte]))
        if peer.wait(stream, 0.1):
            return


def slow(peer, stream, body):
    """A body in pieces that arrives in time."""
    stream.sendall(head(200, len(body)))
    piece = max(1, len(body) // 5)
    for start in range(0, len(body), piece):
        time.sleep(0.05)
        stream.sendall(body[start : start + piece])


def cut(peer, stream, body):
    stream.sendall(head(200, len(body) + 1000) + body[: len(body) // 2])
    raise ConnectionError


def reset(peer, stream, body):
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionError


def oversized(peer, stream, body):
    stream.sendall(b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n")
    while True:
        stream.sendall(b" " * (1 << 16))


def large_header(peer, stream, body):
    stream.sendall(b"HTTP/1.1 200 X\r\nx-large: ")
    for _ in range(64):
        stream.sendall(b"x" * (1 << 16))
    stream.sendall(b"\r\ncontent-length: 2\r\n\r\n{}")


def emptied(peer, stream, body):
    """The right number of lists, with nothing in them."""
    text = json.dumps({"result": [[] for _ in json.loads(body)["result"]]}).encode()
    stream.sendall(head(200, len(text)) + text)


def short(peer, stream, body):
    """One list, or one choice, too few."""
    answer = json.loads(body)
    for key in ("result", "choices"):
        if key in answer:
            answer[key] = answer[key][1:]
    text = json.dumps(answer).encode()
    stream.sendall(head(200, len(text)) + text)


def blank(peer, stream, body):
    """Choices in which a judge says nothing, or in which a policy drew no token."""
    answer = json.loads(body)
    for choice in answer["choices"]:
        if "message" in choice:
            choice["message"]["content"] = ""
        else:
            choice |= {"text": "", "token_ids": [], "logprobs": {"tokens": [], "token_logprobs": []}}
    text = json.dumps(answer).encode()
    stream.sendall(head(200, len(text)) + text)


ACTS = {
    "400": status(400),
    "401": status(401),
    "429": status(429, "retry-after: 1\r\n"),
    "500": status(500),
    "503": status(503),
    "redirect": status(302, "location: http://127.0.0.1:9/\r\n"),
    "garbage with status 200": say(b"<html><body>502 Bad Gateway</body></html>"),
    "other JSON with status 200": say(b'{"detail": "warming up"}'),
    "empty body with status 200": say(b""),
    "empty results": emptied,
    "empty answers": blank,
    "too few results": short,
    "hang": hang,
    "slow header": slow_header,
    "byte drip": drip,
    "slow body, in time": slow,
    "cut body": cut,
    "connection reset": reset,
    "oversized body": oversized,
    "oversized header": large_header,
}


class Peer:
    """A server that counts its requests and fails as it is told."""

    def __init__(self, sound):
        self.sound, self.lock = sound, threading.Lock()
        self.act, self.rare, self.after, self.picky = None, False, 0, False
        self.asked = self.failed = 0
        self.first_failure = None
        self.closing = False
        self.streams = set()
        self.listener = None
        self.port = 0
        self.up()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def fail(self, fault, rare=False, after=0, picky=False):
        """Sets the fault: after so many sound answers, in one request of ten, or (`picky`) for the same one query of ten each
        time. `refused` closes the port instead."""
        with self.lock:
            self.act, self.rare, self.after, self.picky = fault, rare, after, picky
            self.asked = self.failed = 0
            self.first_failure = None

    def heal(self):
        with self.lock:
            self.act = None
        if self.listener is None:
            self.up()

    def up(self):
        listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def down(self):
        """Closes the port and every connection."""
        listener, self.listener = self.listener, None
        if listener is not None:
            # Closing alone does not wake a thread in accept.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for stream in list(self.streams):
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closing = True
        self.down()

    def accept(self, listener):
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def wait(self, stream, seconds):
        """Waits until the other side closes the connection, and says whether it did."""
        stream.settimeout(seconds)
        try:
            return stream.recv(1) == b""
        except TimeoutError:
            return self.closing
        finally:
            stream.settimeout(None)

    def serve(self, stream):
        self.streams.add(stream)
        reader = stream.makefile("rb")
        try:
            while self.one(stream, reader):
                pass
        except (OSError, ValueError):
            pass
        finally:
            self.streams.discard(stream)
            reader.close()
            stream.close()

    def one(self, stream, reader):
        line = reader.readline().split()
        if len(line) < 2:
            return False
        length = 0
        while (header := reader.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = json.loads(reader.read(length)) if length else None
        path = line[1].decode().split("?")[0]
        answer = self.sound.answer(path, body) if body is not None or path == "/v1/models" else None
        if answer is None:
            stream.sendall(head(404, 2) + b"{}")
            return True
        text = json.dumps(answer).encode()
        # A fault hits the work, not the questions about the server and not the pushes, which end in an echo.
        works = path in ("/retrieve", "/v1/chat/completions", "/v1/completions") and not body.get("echo")
        act = self.chosen(body) if works else None
        if act == "refused":
            threading.Thread(target=self.down, daemon=True).start()
            return False
        if act is None:
            stream.sendall(head(200, len(text)) + text)
            return True
        ACTS[act](self, stream, text)
        return act not in ("hang", "slow header", "byte drip")

    def chosen(self, body):
        with self.lock:
            number, self.asked = self.asked, self.asked + 1
            hit = number % RARE == 3 if self.rare else number >= self.after
            if self.picky:
                hit = any(digest(query) % RARE == 3 for query in body["queries"])
            if self.act is None or not hit:
                return None
            self.failed += 1
            if self.first_failure is None:
                self.first_failure = time.monotonic()
            return self.act


class Hub:
    """A hub whose ETag is a path on the client's machine."""

    def __init__(self, etag):
        self.etag, self.tokens = etag, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def answer(self, stream):
        with stream, stream.makefile("rb") as reader:
            while line := reader.readline():
                path = line.split()[1].decode()
                fields = {}
                while (header := reader.readline().strip()) != b"":
                    name, _, value = header.partition(b":")
                    fields[name.lower().decode()] = value.strip().decode()
                self.tokens.append(fields.get("authorization"))
                if path.startswith("/api/"):
                    files = [{"rfilename": name} for name in ("config.json", "tokenizer.json", "model.safetensors")]
                    text = json.dumps({"sha": "0" * 40, "siblings": files}).encode()
                    stream.sendall(head(200, len(text)) + text)
                    continue
                text = b"planted by a stranger"
                more = f'etag: "{self.etag}"\r\nx-repo-commit: {"0" * 40}\r\ncontent-range: bytes 0-{len(text) - 1}/{len(text)}\r\naccept-ranges: bytes\r\n'
                stream.sendall(head(206, len(text), more) + (b"" if line.startswith(b"HEAD") else text))
