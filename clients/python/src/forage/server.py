"""A server of an environment: the routes of `forage serve env` that rollouts use, with the standard library alone."""

import errno
import inspect
import json
import os
import re
import signal
import socketserver
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from .environment import Environment, Question, Reply

__all__ = ["serve"]

# Episodes at a time, and how long one of them may wait for a turn.
_PLACES = 4096
_IDLE_S = 600.0
# Episodes that are over whose last answer is kept, in case that it was lost.
_KEPT = 1024
_BODY_BYTES = 8 << 20
_ACTION_BYTES = 256 << 10
# What clients and other trainers are told, who bring no questions and know further routes.
_FOR_CLIENTS = "for clients and other trainers, serve it by `forage serve env --config CONFIG --env-command COMMAND`"
# This machine as the `Host` of a request may name it.
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.ASCII | re.IGNORECASE)


def serve(make: type[Environment] | Callable[[], Environment], *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serves an environment until the process is stopped, by Ctrl-C or SIGTERM, and closes the episodes that are left.

    `forage train CONFIG --env-command "python3 FILE"` starts the process that calls this, and stops it; the port is then a free
    one. Without `--env-command`, the config names the address: `environment.settings.url = "http://127.0.0.1:8000"`.

    Args:
        make: the class, or a function that makes an environment for an episode.
        host: address to listen on. Whoever reaches it plays: on a network that is not yours, put a proxy before it.
        port: port to listen on; 0 takes a free one.

    Raises:
        TypeError: `make` makes no environment: `reset` or `step` is missing, or a limit is of another type.
        SystemExit: the address is taken, or is none of this machine.
    """
    # Set by forage where it has started this process: it says so by its end of a pipe how long it lives.
    started = "FORAGE_ENV_COMMAND" in os.environ
    given = 0 if started else port
    try:
        server = _Server((host, given), make)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sys.exit(
                f"port {given} of {host} is in use; stop what listens there, or give `forage.serve` another `port`"
            )
        sys.exit(f"cannot listen on {host}:{given}: {error}; give `forage.serve` another `host` or `port`")
    if threading.current_thread() is threading.main_thread():
        # Schedulers send SIGTERM to all processes of a job, and forage still has a step to finish: its end is told by the pipe.
        signal.signal(signal.SIGTERM, _go_on if started else signal.default_int_handler)
        if hasattr(os, "register_at_fork"):
            # What the class starts is ended by it as ever.
            os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    if started:
        threading.Thread(target=_stop_with_parent, args=(server,), daemon=True).start()
    print(f"listening on http://{server.server_name}:{server.server_port}, {server.spec['id']}", flush=True)
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        server.end()


def _go_on(*_: Any) -> None:
    """Does nothing. A signal that is ignored would be ignored by other programs too that the class starts."""


def _stop_with_parent(server: "_Server") -> None:
    sys.stdin.buffer.read()
    # A `close` that hangs would keep the process.
    late = threading.Timer(5.0, os._exit, (1,))
    late.daemon = True
    late.start()
    server.shutdown()


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.cause = status, code, cause


def _invalid(detail: str) -> _Refused:
    return _Refused(422, "VALIDATION_ERROR", "invalid", detail)


class _Session:
    """An episode. Whoever holds `lock` plays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.used = time.monotonic()
        self.env: Environment | None = None
        self.question: Question
        self.seed = self.turn = 0
        self.prefix = ""
        # The request that was answered last, which may come again because its answer was lost.
        self.last: tuple[str, dict[str, Any]] | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], make: type[Environment] | Callable[[], Environment]) -> None:
        self._make = make
        first = _made(make)
        self.spec: dict[str, Any] = _limits(first) | {
            "outcome": "answer",
            "append_eos_after_stop": False,
            "tools": [],
        }
        self._questions = _of(first, "questions")
        # How often the environment's code failed, by exception and place.
        self._faults: Counter[tuple[type[BaseException], str]] = Counter()
        self._sessions: dict[str, _Session] = {}
        self._over: dict[str, _Session] = {}
        self._swept = time.monotonic()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Without the look-up of the host's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tells what failed; that a client has left is not a failure."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    # Routes: from a body to an answer.

    def info(self, _: dict[str, Any]) -> dict[str, Any]:
        limits = {
            "sessions": _PLACES,
            "session_ttl_s": _IDLE_S,
            "body_bytes": _BODY_BYTES,
            "action_bytes": _ACTION_BYTES,
        }
        return {
            "name": "forage-python",
            "spec": self.spec,
            "takes_tasks": True,
            "tasks": 0,
            "tools": [],
            "limits": limits,
        }

    def questions(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = (_field(body, "split", str), _field(body, "count", int), _field(body, "seed", int))
        found = self._ours(lambda: list(self._questions(*asked)))
        if other := [type(question).__name__ for question in found if not isinstance(question, Question)]:
            what = f"questions returned {other[0]}; return forage.Question"
            raise self._broken(None, _begins(self._questions) + what)
        tasks = [question.task() | {"split": asked[0]} for question in found]
        for task in tasks:
            task["data_source"] = task["data_source"] or self.spec["id"]
        return {"tasks": tasks}

    def reset(self, body: dict[str, Any]) -> dict[str, Any]:
        name = _field(body, "episode_id", str)
        if "task" not in body:
            raise _invalid(f"forage begins episodes of this class with their question as `task`; {_FOR_CLIENTS}")
        task = _field(body, "task", dict)
        try:
            question = Question.read(task)
        except (KeyError, TypeError) as error:
            raise _invalid(f"`task` is not a task: {error!r}") from error
        seed = _field(body, "seed", int)
        while True:
            session = self._place(name)
            with session.lock:
                # Whoever held it may have ended it, and its place is given back then.
                if self._sessions.get(name) is session:
                    return self._begin(session, question, seed)

    def step(self, body: dict[str, Any]) -> dict[str, Any]:
        name, action = _field(body, "episode_id", str), _field(body, "action", dict)
        turn, request = _field(action, "text", str), body.get("request_id")
        if (length := len(turn.encode(errors="surrogatepass"))) > _ACTION_BYTES:
            raise _invalid(f"the turn has {length} bytes, at most {_ACTION_BYTES} are taken; write less")
        session = self._known(name)
        with session.lock:
            if request is not None and session.last is not None and session.last[0] == str(request):
                return session.last[1]
            if (env := session.env) is None:
                raise _Refused(
                    409, "SESSION_ERROR", "episode_over", f"the episode of `{name}` is over; reset to begin another"
                )
            answer = self._turn(session, env, turn, action.get("finish"))
            if request is not None:
                session.last = (str(request), answer)
            if answer["done"]:
                self._end(session)
            return answer

    def close(self, body: dict[str, Any]) -> dict[str, Any]:
        name = _field(body, "episode_id", str)
        session = self._known(name)
        with session.lock:
            self._end(session)
        return {"episode_id": name, "closed": True}

    def _begin(self, session: _Session, question: Question, seed: int) -> dict[str, Any]:
        self._close(session)
        session.question, session.seed = question, seed
        session.turn, session.prefix, session.last = 0, "", None
        env = session.env = self._ours(self._make, session)
        prompt = self._ours(lambda: env.reset(question, seed), session)
        if not isinstance(prompt, str):
            what = f"reset returned {type(prompt).__name__}; return the opening prompt, a str"
            raise self._broken(session, _begins(env.reset) + what)
        seen = self._seen(session, prompt, None)
        return {"observation": seen, "reward": None, "done": False, "episode_id": session.name}

    def _turn(self, session: _Session, env: Environment, turn: str, finish: str | None) -> dict[str, Any]:
        if not turn.startswith(session.prefix):
            turn = session.prefix + turn
        # What the prefix holds ended no turn.
        found = [(turn.find(stop, len(session.prefix)), len(stop)) for stop in self.spec["stop"]]
        turn = turn[: min((place + length for place, length in found if place >= 0), default=len(turn))]
        reply = self._ours(lambda: env.step(turn), session)
        if not isinstance(reply, Reply):
            what = f"step returned {type(reply).__name__}; return a forage.Reply"
            raise self._broken(session, _begins(env.step) + what)
        session.turn += 1
        session.prefix = reply.forced_prefix or ""
        cut = not reply.done and (session.turn >= self.spec["max_turns"] or finish == "context")
        seen = self._seen(session, "" if reply.done or cut else reply.text, reply.kind)
        seen |= {"terminated": reply.done, "truncated": cut}
        # A comparison is a number in Python, and none in JSON.
        reward, done = float(reply.reward), reply.done or cut
        return {"observation": seen, "reward": reward, "done": done, "episode_id": session.name}

    def _seen(self, session: _Session, text: str, kind: Any) -> dict[str, Any]:
        question = session.question
        return {
            "text": text,
            "episode_id": session.name,
            "task_id": question.id,
            "question": question.text,
            "data_source": question.data_source,
            "turn": session.turn,
            "max_turns": self.spec["max_turns"],
            "stop": self.spec["stop"],
            "forced_prefix": session.prefix or None,
            "seed": session.seed,
            "terminated": False,
            "truncated": False,
            "info": {"kind": kind, "ending": None, "score": None, "ignored_chars": 0},
        }

    # Sessions.

    def _place(self, name: str) -> _Session:
        """The session of this name, a new one where there is none."""
        now = time.monotonic()
        if now - self._swept > 1.0:
            self._swept = now
            self._sweep(now)
        with self._guard:
            if name not in self._sessions:
                if (active := len(self._sessions)) >= _PLACES:
                    raise _Refused(503, "CAPACITY_REACHED", "overloaded", f"{active} of {_PLACES} sessions are open")
                self._over.pop(name, None)
                self._sessions[name] = _Session(name)
            self._sessions[name].used = now
            return self._sessions[name]

    def _known(self, name: str) -> _Session:
        with self._guard:
            session = self._sessions.get(name) or self._over.get(name)
            if session is None:
                raise _Refused(
                    404, "SESSION_ERROR", "unknown_session", f"there is no session `{name}`; reset to begin one"
                )
            session.used = time.monotonic()
            return session

    def _sweep(self, now: float) -> None:
        """Ends the episodes that nobody has played for long."""
        with self._guard:
            idle = [session for session in self._sessions.values() if now - session.used > _IDLE_S]
        for session in idle:
            if session.lock.acquire(blocking=False):
                try:
                    # Unless it was played in the meantime.
                    if now - session.used > _IDLE_S:
                        self._end(session)
                finally:
                    session.lock.release()

    def _end(self, session: _Session) -> None:
        """Gives the place of an episode back. The caller holds its lock."""
        with self._guard:
            if self._sessions.get(session.name) is session:
                del self._sessions[session.name]
                self._over[session.name] = session
                if len(self._over) > _KEPT:
                    del self._over[next(iter(self._over))]
        self._close(session)

    def _close(self, session: _Session) -> None:
        env, session.env = session.env, None
        try:
            if env is not None and hasattr(env, "close"):
                env.close()
        except (Exception, SystemExit) as error:
            # The episode is over, and keeps what it earned.
            self._tell(error)

    def end(self) -> None:
        """Ends all episodes, and closes the socket."""
        self.server_close()
        for session in list(self._sessions.values()):
            if session.lock.acquire(timeout=1.0):
                self._end(session)
        for (kind, place), times in self._faults.items():
            if times > 1:
                print(f"{kind.__name__} at {place}: {times} times", file=sys.stderr)

    # The environment's own code, whose faults are ours to tell.

    def _ours(self, work: Callable[[], Any], session: _Session | None = None) -> Any:
        """What the environment's code returns; an exception of it is a fault, which ends the episode."""
        try:
            return work()
        except BaseException as error:
            # Among them those that end a thread, or a task of asyncio, without a word. Ctrl-C reaches another thread.
            self._tell(error)
            words = traceback.format_exception_only(error)[-1].strip()
            raise self._broken(session, f"{_place(error)}: {words}") from error

    def _tell(self, error: BaseException) -> None:
        """Prints the traceback of an exception, of those with one place the first alone."""
        key = type(error), _place(error)
        with self._guard:
            self._faults[key] += 1
            first = self._faults[key] == 1
        if first:
            traceback.print_exception(error)

    def _broken(self, session: _Session | None, what: str) -> _Refused:
        if session is not None:
            self._end(session)
            what = f"question {session.question.id!r}: {what}"
        return _Refused(503, "EXECUTION_ERROR", "environment", what)


def _begins(method: Any) -> str:
    """Where a method is written, as `guess.py:12: `; nothing where Python does not know."""
    code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
    return "" if code is None else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}: "


def _place(error: BaseException) -> str:
    """The line that raised an exception, as far as it is not this package's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(("<", os.path.dirname(__file__) + os.sep))]
    place = (theirs or frames)[-1]
    return f"{os.path.basename(place.filename)}:{place.lineno} in {place.name}"


def _made(make: type[Environment] | Callable[[], Environment]) -> Environment:
    """An environment, which is looked at before any episode begins."""
    if not callable(make):
        kind = type(make).__name__
        raise TypeError(f"serve got an instance of {kind}; give it the class, or a function that makes an environment")
    first = make()
    for name, form in (("reset", "self, question, seed"), ("step", "self, turn")):
        own = getattr(first, name, None)
        if not callable(own) or getattr(own, "__func__", own) is getattr(Environment, name):
            raise TypeError(f"{type(first).__name__} has no `{name}`; write `def {name}({form})`")
    return first


def _of(env: Environment, name: str) -> Any:
    """An attribute, which a class that is not derived from `Environment` may lack."""
    return getattr(env, name, getattr(Environment, name))


def _limits(env: Environment) -> dict[str, Any]:
    """The attributes that tell of a class what it is."""

    def wrong(name: str, value: Any, right: str) -> TypeError:
        return TypeError(f"{type(env).__name__}.{name} is {value!r}; it must be {right}")

    found: dict[str, Any] = {"id": _of(env, "id")}
    if not isinstance(found["id"], str):
        raise wrong("id", found["id"], 'a str, as in "mine/guess-v0"')
    for name in ("max_turns", "max_turn_tokens", "max_episode_tokens"):
        value = found[name] = _of(env, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise wrong(name, value, "an int of at least 1")
    stop = _of(env, "stop")
    found["stop"] = [stop] if isinstance(stop, str) else stop
    if not isinstance(found["stop"], (list, tuple)) or not all(isinstance(one, str) and one for one in found["stop"]):
        raise wrong("stop", stop, "a str or a tuple of them, none of them empty")
    return found | {"stop": list(found["stop"])}


def _field(body: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _invalid(f"`{name}` must be of JSON's kind for {kind.__name__}")
    return value


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # An answer is one packet, sent at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    # Of a connection without a request.
    timeout = 60
    routes: ClassVar[dict[str, str]] = {
        "/reset": "reset",
        "/step": "step",
        "/close": "close",
        "/questions": "questions",
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a connection that was idle while the policy learned is closed, and what is refused is told to the client."""

    def do_GET(self) -> None:
        self._answer({"/info": self.server.info, "/healthz": lambda _: {}, "/readyz": lambda _: {}}.get(self.path))

    def do_POST(self) -> None:
        name = self.routes.get(self.path)
        self._answer(None if name is None else getattr(self.server, name))

    def _answer(self, route: Callable[[dict[str, Any]], dict[str, Any]] | None) -> None:
        status = 200
        try:
            body = self._body()
            if route is None:
                what = f"there is no {self.command} {self.path} of this class; {_FOR_CLIENTS}"
                raise _Refused(404, "VALIDATION_ERROR", "not_found", what)
            answer = route(body)
        except _Refused as refused:
            status = refused.status
            answer = {"code": refused.code, "cause": refused.cause, "detail": str(refused)}
        # Half of a surrogate pair is a character in Python alone. A policy can write one, as `"\\ud800"` in JSON that a class reads.
        text = json.dumps(answer, allow_nan=False, ensure_ascii=False)
        content = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> dict[str, Any]:
        """The request's fields. No web page gets this far: browsers name their page as the origin, or cannot send JSON."""
        # What is refused here is not read, and must not be taken for the next request.
        keep, self.close_connection = self.close_connection, True
        if self.headers.get("Transfer-Encoding") is not None:
            raise _Refused(411, "VALIDATION_ERROR", "length", "send the body whole, with its `Content-Length`")
        length = self.headers.get("Content-Length") or "0"
        if not (length.isascii() and length.isdigit()):
            raise _Refused(400, "VALIDATION_ERROR", "length", "`Content-Length` must be a number of bytes")
        if len(length) > 18 or int(length) > _BODY_BYTES:
            raise _Refused(413, "VALIDATION_ERROR", "too_large", f"a body may have {_BODY_BYTES} bytes")
        if self.headers.get("Origin") is not None:
            raise _Refused(403, "VALIDATION_ERROR", "foreign_origin", "web pages do not play here")
        # A page's own name may lead to this machine.
        host, here = self.headers.get("Host"), str(self.server.server_address[0])
        if host is not None and _LOOPBACK.fullmatch(here) and not _LOOPBACK.fullmatch(host):
            raise _Refused(403, "VALIDATION_ERROR", "foreign_host", f"this is {here}, not {host!r}")
        self.close_connection = keep
        content = self.rfile.read(int(length))
        if self.command == "GET":
            return {}
        if not (self.headers.get("Content-Type") or "").startswith("application/json"):
            raise _Refused(415, "VALIDATION_ERROR", "not_json", "send application/json")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _Refused(422, "INVALID_JSON", "json", f"not JSON: {error}") from error
        if not isinstance(body, dict):
            raise _invalid("the body must be an object")
        return body
