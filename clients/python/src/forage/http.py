"""JSON over HTTP with kept connections, one for each thread."""

import http.client
import ipaddress
import json
import os
import threading
import time
import warnings
from collections.abc import Mapping
from operator import index
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from .errors import Capacity, Fault, Invalid, Unreachable, from_answer

__all__ = ["Closing", "Http"]

# Bytes of an answer that are read: twice what `forage serve retriever` sends unless told otherwise.
_ANSWER_BYTES = 256 << 20
# What a kept connection says when the server has closed it in the meantime, or when an answer on it was never read.
_STALE = (
    http.client.RemoteDisconnected,
    http.client.ImproperConnectionState,
    ConnectionResetError,
    BrokenPipeError,
)


def _is_here(host: str) -> bool:
    """Tells whether a host is this machine, whatever its name service says."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _wait(headers: http.client.HTTPMessage) -> float:
    """The seconds that an answer asks to wait; a date in their place is not read."""
    try:
        return max(0.05, float(headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0


def _address(base_url: str) -> SplitResult:
    address = urlsplit(base_url if isinstance(base_url, str) else "")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"base_url is {base_url!r}; write it like http://localhost:8000")
    if address.username is not None or address.query or address.fragment:
        # Not told as it is, for it may hold a password.
        raise ValueError(
            "base_url has a user, a query or a fragment, which are not sent; write it like http://localhost:8000"
        )
    try:
        # Looked at when it is asked for.
        _ = address.port
    except ValueError as error:
        raise ValueError(f"base_url is {base_url!r}: {error}") from error
    return address


class Http:
    """Requests to one server. Threads may share it, and processes that were forked."""

    def __init__(self, base_url: str, token: str | None, timeout: float, patience: float) -> None:
        """Connects to nothing yet.

        Raises:
            ValueError: `base_url` is not an address like `http://host:8000`, or `token` holds what no header can.
        """
        address = _address(base_url)
        self.base_url = base_url.rstrip("/")
        self._address = address
        self._timeout = timeout
        self._patience = patience
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        # As it is read from a file, with the end of its line.
        token = None if token is None else token.strip()
        if token:
            if not (token.isascii() and token.isprintable()):
                # Not told as it is.
                raise ValueError("token holds characters that no header can carry; give the content of the token file")
            self._headers["Authorization"] = f"Bearer {token}"
            if address.scheme == "http" and not _is_here(address.hostname or ""):
                told = f"the token is sent over plain http to {address.hostname}, readable on the way"
                warnings.warn(f"{told}: use https, unless the network is your own", stacklevel=3)
        self._kept = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        """Connections do not travel between processes."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Connects anew."""
        self.__dict__.update(state)
        self._kept = threading.local()

    def get(self, path: str) -> Any:
        """The answer to a GET."""
        return self._ask("GET", path, None, patient=True)

    def post(self, path: str, body: Mapping[str, Any], *, patient: bool = True) -> Any:
        """The answer to a POST; fields that are None are left out. One that is not `patient` does not wait for a server that is full.

        Raises:
            ForageError: as the server's answer tells, or `Unreachable`.
        """
        given = {name: value for name, value in body.items() if value is not None}
        # Numbers of numpy are numbers, though JSON does not know them.
        return self._ask("POST", path, json.dumps(given, default=index).encode(), patient=patient)

    def _ask(self, method: str, path: str, body: bytes | None, *, patient: bool) -> Any:
        deadline = time.monotonic() + (self._patience if patient else 0.0)
        while True:
            try:
                return self._ask_once(method, path, body)
            except Capacity as full:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(full.retry_after, left))

    def _ask_once(self, method: str, path: str, body: bytes | None) -> Any:
        asked = f"{method} {self.base_url}{path}"
        try:
            status, headers, text = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            words = str(error) or type(error).__name__
            raise Unreachable(f"{asked}: {words}", "unreachable") from error
        if 300 <= status < 400:
            # Not followed: it would leave the body behind, or take the token elsewhere.
            place = headers.get("Location", "another address")
            raise Invalid(f"{asked} is sent on to {place} (status {status}); give that server's address", "redirected")
        try:
            answer = json.loads(text)
        except ValueError as error:
            if status < 400:
                raise Invalid(f"{asked} did not answer with JSON; is this a server of forage?", "not_json") from error
            said = text[:200].decode(errors="replace").strip()
            answer = {"detail": f"{asked} was answered by something else than forage with status {status}: {said}"}
        if status >= 400:
            raise from_answer(status, answer if isinstance(answer, dict) else {}, _wait(headers))
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        kept = self._mine()
        if kept is not None:
            try:
                return self._send(kept, method, path, body)
            except _STALE:
                # Closed while idle, or lost on the way. Episodes and turns are named by the client, so the server does
                # nothing twice; environments that it makes twice expire.
                self.close()
        self._kept.connection = fresh = self._connect()
        self._kept.process = os.getpid()
        return self._send(fresh, method, path, body)

    def _mine(self) -> http.client.HTTPConnection | None:
        """This thread's kept connection. One of before a fork is the other process's, which would read our answers."""
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        return kept if kept is not None and self._kept.process == os.getpid() else None

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection.request(method, self._address.path.rstrip("/") + path, body, self._headers)
        # An answer may hold a socket that its connection has let go of.
        with connection.getresponse() as answer:
            text = answer.read(_ANSWER_BYTES + 1)
        if len(text) > _ANSWER_BYTES:
            raise http.client.HTTPException(f"the answer has more than {_ANSWER_BYTES} bytes")
        # A read of so many bytes ends without an error where the connection does.
        if answer.length:
            raise http.client.IncompleteRead(text, answer.length)
        return answer.status, answer.headers, text

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        assert self._address.hostname is not None
        return kind(self._address.hostname, self._address.port, timeout=self._timeout)

    def close(self) -> None:
        """Closes this thread's connection; the next request opens another."""
        kept = self._mine()
        self._kept.connection = None
        if kept is not None:
            kept.close()


class Closing:
    """What is given back at the end of a `with` block: places on a server, a connection."""

    def close(self) -> None:
        """Gives it back."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes; what was raised inside is not hidden by a server that is gone."""
        try:
            self.close()
        except Fault:
            if error is None:
                raise
