"""An episode of the environment server over each of its protocols, spoken with Python's standard library: HTTP, WebSocket, MCP.

A talk begins an episode, takes turns, and ends; or it leaves, in the middle of a turn whose answer it does not wait for. Answers are
the status that HTTP would have, and the bytes.
"""

import json
import os
import re
from typing import NamedTuple

# The statuses that WebSocket and MCP do not tell, by the code of the error.
STATUSES = {
    "CAPACITY_REACHED": 503,
    "SESSION_ERROR": 410,
    "VALIDATION_ERROR": 422,
    "INVALID_JSON": 422,
    "UNKNOWN_TYPE": 422,
    "EXECUTION_ERROR": 500,
}
MCP_VERSION = "2025-06-18"


class Turn(NamedTuple):
    """A turn as text and as the call of a tool, and what its answer must hold."""

    text: str
    tool: str
    arguments: dict
    told: bytes = b""


class Http:
    """OpenEnv's routes: a session by name."""

    way = "http"

    def __init__(self, server, name, timeout):
        self.server, self.name, self.timeout = server, name, timeout

    def begin(self, seed):
        return self.server.ask("POST", "/reset", {"seed": seed, "episode_id": self.name}, timeout=self.timeout)

    def request(self, turn):
        return "POST", "/step", {"episode_id": self.name, "action": {"text": turn.text}}

    def turn(self, turn):
        return self.server.ask(*self.request(turn), timeout=self.timeout)

    def leave(self, turn, drop):
        """`drop` is given the bytes of the turn, and a connection where the talk has one."""
        drop(self.server.request(*self.request(turn)))

    def end(self):
        """An episode over HTTP ends with its last turn."""
        return 200, b""

    def close(self):
        pass


class WebSocket:
    """OpenEnv's messages: a session that is the connection."""

    way = "websocket"

    def __init__(self, server, name, timeout):
        del name
        self.stream, self.data = server.connect(timeout), bytearray()
        self.status, self.answer = self.upgrade(server)

    def upgrade(self, server):
        fields = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        self.stream.sendall(server.request("GET", "/ws", headers=fields))
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, _, rest = bytes(self.data).partition(b"\r\n\r\n")
        self.data = bytearray(rest)
        return int(head.split(b" ", 2)[1]), head

    def more(self):
        piece = self.stream.recv(1 << 16)
        if not piece:
            raise ConnectionError("the WebSocket was closed without a word")
        self.data += piece

    def take(self, count):
        while len(self.data) < count:
            self.more()
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken

    @staticmethod
    def frame(text):
        """A message in one frame, masked as a client's must be."""
        raw, mask = text.encode(), os.urandom(4)
        size = len(raw)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
        else:
            length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
        return b"\x81" + length + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(raw))

    def message(self):
        """The next message; `None` at the end of the connection."""
        whole = b""
        while True:
            first, second = self.take(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self.take(2 if size == 126 else 8), "big")
            data = self.take(size)
            kind = first & 0x0F
            if kind == 8:
                return None
            # 9 and 10 are signs of life.
            if kind < 8:
                whole += data
                if first & 0x80:
                    return whole

    def say(self, text):
        """The answer to a message."""
        if self.status != 101:
            return self.status, self.answer
        self.stream.sendall(self.frame(text))
        answer = self.message()
        if answer is None:
            return None, b"closed in place of an answer"
        found = json.loads(answer)
        if found["type"] == "error":
            return STATUSES.get(found["data"]["code"]), answer
        return 200, answer

    def begin(self, seed):
        return self.say(json.dumps({"type": "reset", "data": {"seed": seed}}))

    def turn(self, turn):
        return self.say(self.step(turn))

    @staticmethod
    def step(turn):
        return json.dumps({"type": "step", "data": {"text": turn.text}})

    def leave(self, turn, drop):
        drop(self.frame(self.step(turn)), self.stream)

    def end(self):
        self.stream.sendall(self.frame('{"type": "close"}'))
        answer = self.message()
        return (200, b"") if answer is None else (None, answer)

    def close(self):
        self.stream.close()


class Mcp:
    """Tools over the streamable HTTP transport: a session that its first answer names."""

    way = "mcp"

    def __init__(self, server, name, timeout):
        del name
        self.server, self.timeout = server, timeout
        self.session, self.number = None, 0

    def message(self, method, params):
        self.number += 1
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    def fields(self):
        fields = {"accept": "application/json, text/event-stream"}
        if self.session is not None:
            fields |= {"mcp-session-id": self.session, "mcp-protocol-version": MCP_VERSION}
        return fields

    def post(self, message):
        """Status, head and body."""
        status, head, body = self.server.exchange("POST", "/mcp", message, self.fields(), self.timeout)
        return status, head, unchunked(head, body)

    def ask(self, message):
        status, _, body = self.post(message)
        return (told(body), body) if status == 200 else (status, body)

    def begin(self, seed):
        client = {"name": "soak", "version": "1"}
        params = {"protocolVersion": MCP_VERSION, "capabilities": {}, "clientInfo": client}
        status, head, body = self.post(self.message("initialize", params))
        named = re.search(rb"mcp-session-id: *(\S+)", head, re.IGNORECASE)
        if status != 200 or named is None:
            return status if status != 200 else None, body
        self.session = named[1].decode()
        status, _, body = self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if status not in {200, 202}:
            return status, body
        return self.ask(self.call("new_question", {"seed": seed}))

    def call(self, tool, arguments):
        return self.message("tools/call", {"name": tool, "arguments": arguments})

    def turn(self, turn):
        return self.ask(self.call(turn.tool, turn.arguments))

    def leave(self, turn, drop):
        drop(self.server.request("POST", "/mcp", self.call(turn.tool, turn.arguments), self.fields()))

    def end(self):
        status, answer = self.server.ask("DELETE", "/mcp", headers=self.fields(), timeout=self.timeout)
        return 200 if status in {202, 204} else status, answer

    def close(self):
        pass


def unchunked(head, body):
    """A body without the lengths of its pieces."""
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        whole, body = whole + body[:length], body[length + 2 :]
    return whole


def told(body):
    """The status of an answer of MCP: as JSON, or as the last event of a stream."""
    events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    found = json.loads(events[-1] if events else body)
    result = found.get("result")
    if result is None:
        return 422
    if result.get("isError"):
        return STATUSES.get(result.get("structuredContent", {}).get("code"), 422)
    return 200


PROTOCOLS = [Http, WebSocket, Mcp]
