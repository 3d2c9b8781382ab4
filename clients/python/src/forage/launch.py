"""The forage program: where it is, the quickstart, and its servers."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from .run import Run

__all__ = ["command", "program", "quickstart", "serving"]

# What the program writes, whatever the locale: a line that cannot be read (of another program, say) must not end the reading.
_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"}
# Lines of what the program said that an error may show.
_SAID = 50


def program() -> Path:
    """Where the forage program is: what FORAGE_BIN names, else what the wheel brought, else the first on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("FORAGE_BIN")
    found = named or _brought() or shutil.which("forage")
    if not found:
        raise FileNotFoundError("there is no forage program: install forage from a wheel, or name one in FORAGE_BIN")
    path = Path(found).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{'FORAGE_BIN names' if named else 'the wheel brought'} {path}, which is not there")
    return path


def _brought() -> str | None:
    try:
        files = metadata.files("forage") or []
    except metadata.PackageNotFoundError:
        return None
    scripts = (
        file for file in files if file.name in ("forage", "forage.exe") and file.parent.name in ("bin", "Scripts")
    )
    return next((str(file.locate()) for file in scripts), None)


def quickstart(
    out: str | Path | None = None,
    *,
    env: str | None = None,
    config: str | Path | None = None,
    seed: int | None = None,
    settings: Mapping[str, str | int | float | bool | Sequence[Any]] | None = None,
    from_scratch: bool = False,
    resume: bool = False,
) -> Run:
    """Goes from a generated world to a verdict, as `forage quickstart` does; what it says goes to the terminal.

    Ctrl-C, or an interrupted cell of a notebook, stops it as the command is stopped: with a checkpoint after the step, at once when it
    comes again.

    Args:
        out: folder of the run, which must be empty or absent unless it is resumed; by default `runs/quickstart`, and
            `runs/quickstart-NAME` in another environment or by another config.
        env: environment to learn in: `search-r1` (the default), `code-search` or `query-writer`.
        config: config to start from instead of the environment's: a file, or a name such as `smoke`, which takes seconds.
        seed: of the rollouts and the statistics, and of the world of the built-in config.
        settings: values of the config to change, such as `{"grpo.steps": 20}`; a string stands as it would in `--set`.
        from_scratch: train the starting policy too, instead of taking the built-in one.
        resume: continue an interrupted quickstart in the same folder.

    Returns:
        The finished run, which has a `verdict`.

    Raises:
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    if out is None:
        name = Path(config).stem if config is not None else env or "search-r1"
        out = "runs/quickstart" if name in ("search-r1", "quickstart") else f"runs/quickstart-{name}"
    named = {"--out": out, "--env": env, "--config": config, "--seed": seed}
    words = [word for name, value in named.items() if value is not None for word in (name, str(value))]
    words += [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={_written(value)}")]
    words += [name for name, asked in (("--from-scratch", from_scratch), ("--resume", resume)) if asked]
    _ran(["quickstart", *words], None)
    return Run(out)


def _written(value: object) -> str:
    # Numbers, booleans and lists of them are written in TOML as in JSON.
    return value if isinstance(value, str) else json.dumps(value)


@contextmanager
def serving(kind: str, *arguments: str | int | float | Path) -> Iterator[str]:
    """The address of a server of the program, which runs as long as the `with` block; what it says goes to stderr.

    `with forage.serving("env", "search-r1") as url: ...` is `forage serve env search-r1` on a free port, or on that of `"--addr", 8000`.

    Args:
        kind: `env`, `retriever`, `policy` or `run`.
        arguments: further arguments of `forage serve KIND`, such as `--config` and a path.

    Raises:
        FileNotFoundError: there is no forage program.
        RuntimeError: the server did not start; with what it said.
    """
    command = [str(program()), "serve", kind, *map(str, arguments)]
    if not any(word == "--addr" or word.startswith("--addr=") for word in command):
        command += ["--addr", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **_TEXT) as server:
        assert server.stderr is not None
        # A pipe that nobody reads would stop the server once it is full.
        rest = threading.Thread(target=_pass_on, args=(server.stderr,), daemon=True)
        try:
            said: deque[str] = deque(maxlen=_SAID)
            for line in server.stderr:
                if found := re.match(r"listening on (http:[^,]*),", line):
                    rest.start()
                    yield found[1]
                    return
                _pass_on([line], said)
            raise RuntimeError("the server did not start:\n" + "".join(said))
        finally:
            server.terminate()
            if rest.ident is not None:
                rest.join()


def _pass_on(lines: Iterable[str], kept: deque[str] | None = None) -> None:
    for line in lines:
        sys.stderr.write(line)
        if kept is not None:
            kept.append(line)


def command(*arguments: str | int | float | Path) -> str:
    """Runs a command of the program and returns what it prints; what it says besides goes to stderr.

    `forage.command("eval", "smoke", "--limit", 20, "--json")` is `forage eval smoke --limit 20 --json`. Ctrl-C stops it as it stops
    `quickstart`.

    Raises:
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    return _ran([str(argument) for argument in arguments], subprocess.PIPE)


def _ran(arguments: Sequence[str], stdout: int | None) -> str:
    """What the program prints to `stdout`, once it has ended; what it says besides goes to stderr."""
    said: deque[str] = deque(maxlen=_SAID)
    with subprocess.Popen([program(), *arguments], stdout=stdout, stderr=subprocess.PIPE, **_TEXT) as ran:
        try:
            assert ran.stderr is not None
            rest = threading.Thread(target=_pass_on, args=(ran.stderr, said), daemon=True)
            rest.start()
            printed = "" if ran.stdout is None else ran.stdout.read()
            status = ran.wait()
        except BaseException:
            # Of a notebook, Ctrl-C reaches this process alone. A run that is asked to end saves a checkpoint first.
            ran.terminate()
            try:
                ran.wait()
            except BaseException:
                ran.kill()
            raise
        rest.join()
    if status:
        begin = max((place for place, line in enumerate(said) if line.startswith("error: ")), default=len(said) - 1)
        why = "".join(list(said)[max(begin, 0) :]).strip()
        raise RuntimeError(f"forage {arguments[0]} ended with status {status}" + (f":\n{why}" if why else ""))
    return printed
