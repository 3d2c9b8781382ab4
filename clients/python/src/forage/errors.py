"""What may go wrong, by who is to mend it.

`Refused` is the caller's to mend: the request was wrong. A `Fault` is nobody's answer: the server, or something behind it,
failed, and the episode it befell has no reward. A trainer masks such an episode or plays it again; it never counts it as 0.
"""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "Capacity",
    "Conflict",
    "Fault",
    "ForageError",
    "Infra",
    "Invalid",
    "Refused",
    "SessionLost",
    "Stopping",
    "Unauthorized",
    "Unreachable",
]


class ForageError(Exception):
    """Everything this package raises.

    Attributes:
        cause: the server's stable name of what happened (`retriever`, `busy`, ...), or `unreachable`.
    """

    def __init__(self, message: str, cause: str) -> None:
        """Keeps the message and the cause."""
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with all they know."""
        return (_rebuild, (type(self), str(self), self.__dict__))


def _rebuild(kind: type[ForageError], message: str, facts: dict[str, Any]) -> ForageError:
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(facts)
    return error


class Refused(ForageError):
    """The request was wrong; sending it again does not help."""


class Invalid(Refused):
    """A field, a task, a turn or a route that the server does not take (400, 404, 405, 413, 422)."""


class Unauthorized(Refused):
    """The token is missing or wrong (401)."""


class Conflict(Refused):
    """The session cannot do this now (409): `not_reset`, `episode_over` or `busy`."""


class Fault(ForageError):
    """The server or something behind it failed. What it befell has no reward."""


class Infra(Fault):
    """What stands behind the environment failed and ended the episode (503).

    `cause` is `retriever`, `sandbox`, `environment`, `reward` or `deadline`.
    """


class Capacity(Fault):
    """Every place for a session or a search is taken, or the memory for sessions, bodies or answers (503, of a proxy 429).

    Attributes:
        active: sessions that are open; 0 where the server does not say.
        most: sessions that may be; 0 where the server does not say.
        retry_after: seconds the server asks to wait.
    """

    def __init__(self, message: str, *, active: int, most: int, retry_after: float) -> None:
        """Keeps the numbers beside the message."""
        super().__init__(message, "overloaded")
        self.active = active
        self.most = most
        self.retry_after = retry_after


class SessionLost(Fault):
    """The session was closed, for instance because it was idle, or the server does not know it (404, 410)."""


class Stopping(Fault):
    """The server is stopping (503)."""


class Unreachable(Fault):
    """No answer: the server is not there, the connection broke, the answer or the request took too long, or a proxy answered."""


def from_answer(status: int, body: Mapping[str, Any], retry_after: float = 1.0) -> ForageError:
    """The error that an answer's body tells of.

    `body` is that of an HTTP answer, or the entry of a batch's member, which has `message` in place of `detail` and no status
    (give 0).
    """
    detail = body.get("detail", body.get("message", "the server gave no reason"))
    if isinstance(detail, list):
        detail = "; ".join(_told(item) if isinstance(item, Mapping) else str(item) for item in detail)
    message, code, cause = str(detail), str(body.get("code", "")), str(body.get("cause", f"status_{status}"))
    if code == "CAPACITY_REACHED" or cause == "overloaded" or status == 429:
        active, most = int(body.get("active_sessions", 0)), int(body.get("max_sessions", 0))
        return Capacity(message, active=active, most=most, retry_after=retry_after)
    if code == "EXECUTION_ERROR":
        return Infra(message, cause)
    if cause in ("unknown_session", "session_closed"):
        return SessionLost(message, cause)
    if cause == "stopped":
        return Stopping(message, cause)
    if cause == "unauthorized" or status == 401:
        return Unauthorized(message, cause)
    if cause in ("not_reset", "episode_over", "busy"):
        return Conflict(message, cause)
    if status >= 500 or status == 408:
        return Unreachable(message, cause)
    return Invalid(message, cause)


def _told(item: Mapping[str, Any]) -> str:
    """What is wrong with a field of the request, and which one: its `loc` is `["body", "queries", 1]`, say."""
    loc = item.get("loc")
    names = loc[1:] if isinstance(loc, list) else []
    field = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names).removeprefix(".")
    return f"{field}: {item['msg']}" if field and "msg" in item else str(item.get("msg", item))
