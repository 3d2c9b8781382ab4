"""The metrics of a run in Weights & Biases or trackio, during the run or after it.

    python3 -m forage.track RUN --to wandb --project search

reads the folder of a run and logs a row for each step under the names of `docs/metrics.md`, with the config. While a process
works on the run it goes on with it. What was logged is noted in the folder (`tracked.wandb.json`), so that a call which is
repeated, or goes on after it was stopped, logs no step twice; without that file everything is logged anew, into another run of
the tracker.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args
from uuid import uuid4

from .launch import command
from .run import Run, missing

__all__ = ["track"]

Tracker = Literal["wandb", "trackio"]


def track(
    run: str | Path,
    to: Tracker = "wandb",
    *,
    project: str = "forage",
    name: str | None = None,
    follow: bool = True,
    every: float = 5.0,
    wait: float = 0.0,
    **init: Any,
) -> int:
    """Logs the steps of a run that were not logged yet, until the run ends.

    Each run within a folder, those of a quickstart and twins, is a run of the tracker, in a group of the folder's name. Where
    training was stopped and goes on from a checkpoint, it repeats some steps: they stay as they were logged first.

    Args:
        run: the folder.
        to: the package that logs. Its own variables hold: `WANDB_MODE=offline` writes to this machine alone, as trackio does
            unless it is given a Space.
        project: its name there.
        name: of the run there; the folder's by default. In trackio a name belongs to one run of a project.
        follow: whether to go on as long as a process works on the run. The program is asked for that.
        every: seconds between two looks.
        wait: seconds in which the run may begin.
        init: further arguments of the package's `init`, such as `entity`.

    Returns:
        How many steps were logged.

    Raises:
        FileNotFoundError: the folder holds no run, or there is no forage program.
        ModuleNotFoundError: the package is not installed.
        ValueError: `to` is another package.
    """
    package = _package(to)
    folder = Path(run)
    _begun(folder, wait, every)
    logged = 0
    logs: dict[Path, _Log] = {}
    try:
        while True:
            # Asked before the rows are read: those of the last step are there when nobody works on the run any more.
            goes_on = follow and _goes_on(folder)
            for part, whole in _parts(Run(folder)):
                book = _Book(part.folder / f"tracked.{to}.json", project)
                rows = [row for row in part.metrics if row["step"] > book.step]
                if not rows:
                    continue
                log = logs.get(part.folder)
                if log is None:
                    if to == "trackio":
                        # It has one run open at a time.
                        _finish(logs)
                    log = logs[part.folder] = _Log(package, to, part, whole, book, name, init)
                log.write(rows)
                logged += len(rows)
            if not goes_on:
                return logged
            time.sleep(every)
    finally:
        _finish(logs)


def _package(to: Tracker) -> ModuleType:
    if to not in get_args(Tracker):
        raise ValueError(f"to is {to!r}; write one of {', '.join(get_args(Tracker))}")
    try:
        package = importlib.import_module(to)
    except ModuleNotFoundError as error:
        if error.name != to:
            raise
        raise missing(to, to) from error
    # wandb writes into a folder of its name, which Python takes for a package where the real one is not installed.
    if not hasattr(package, "init"):
        raise missing(to, to)
    return package


def _begun(folder: Path, wait: float, every: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            Run(folder)
        except FileNotFoundError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(min(every, 1.0))
        else:
            return


def _goes_on(folder: Path) -> bool:
    """Whether a process works on the run, as the program says."""
    runs = json.loads(command("runs", "show", str(folder), "-n", "0", "--json"))["runs"]
    return any(run["state"] == "running" for run in runs)


def _parts(run: Run) -> list[tuple[Run, Run]]:
    """The runs that have rows, each with the one around it, in the order in which they are trained."""
    own = [run] if (run.folder / "metrics.jsonl").exists() else []
    return [(part, run) for part in (*own, *run.parts.values())]


def _config(run: Run, whole: Run) -> dict[str, Any]:
    for place in (run, whole):
        try:
            return place.config
        except FileNotFoundError:
            continue
    return {}


class _Book:
    """What was logged of a run: under which id of the tracker, and up to which step."""

    def __init__(self, path: Path, project: str) -> None:
        self.path = path
        self.project = project
        books: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        self._books = books
        own: Mapping[str, Any] = books.get(project, {})
        self.id: str | None = own.get("id")
        self.name: str | None = own.get("name")
        self.step: int = own.get("step", -1)

    def write(self) -> None:
        self._books[self.project] = {"id": self.id, "name": self.name, "step": self.step}
        fresh = self.path.with_suffix(".json.new")
        fresh.write_text(json.dumps(self._books) + "\n", encoding="utf-8")
        os.replace(fresh, self.path)


class _Log:
    """An open run of the tracker."""

    def __init__(
        self,
        package: ModuleType,
        to: Tracker,
        part: Run,
        whole: Run,
        book: _Book,
        name: str | None,
        init: Mapping[str, Any],
    ) -> None:
        self._book = book
        place = whole.folder.resolve().name
        is_part = part.folder != whole.folder
        book.name = book.name or (f"{name or place}/{part.folder.name}" if is_part else name or place)
        about: dict[str, Any] = {"project": book.project, "name": book.name, "config": _config(part, whole)}
        if is_part or whole.parts:
            about["group"] = place
        opened = _in_wandb if to == "wandb" else _in_trackio
        try:
            self._run, self.finish = opened(package, book.id, {**about, **init})
        except ValueError as error:
            if book.id is None:
                raise
            raise RuntimeError(f"{error}; remove {book.path} to log the run anew") from error
        book.id = str(self._run.id)

    def write(self, rows: list[dict[str, Any]]) -> None:
        before = self._book.step
        try:
            for row in rows:
                # What is not finite is null in a row.
                numbers = {key: value for key, value in row.items() if key != "step" and value is not None}
                self._run.log(numbers, step=row["step"])
                self._book.step = row["step"]
        finally:
            # Ctrl-C may come between two rows.
            if self._book.step > before:
                self._book.write()


def _finish(logs: dict[Path, _Log]) -> None:
    while logs:
        logs.popitem()[1].finish()


def _in_wandb(wandb: ModuleType, known: str | None, about: dict[str, Any]) -> tuple[Any, Callable[[], None]]:
    # The load of this process and what it prints are not the run's; a run that the caller has open goes on beside it.
    about = {"settings": wandb.Settings(console="off", x_disable_stats=True), "reinit": "create_new", **about}
    run = wandb.init(id=known or uuid4().hex[:12], resume="allow", **about)
    return run, run.finish


def _in_trackio(trackio: ModuleType, known: str | None, about: dict[str, Any]) -> tuple[Any, Callable[[], None]]:
    about = {"auto_log_gpu": False, "auto_log_cpu": False, **about}
    run = trackio.init(resume="must" if known else "never", **about)
    if known and run.id != known:
        trackio.finish()
        raise RuntimeError(f"another run of {about['project']} has the name {about['name']}; rename one of them")
    return run, trackio.finish


def _main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m forage.track", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--to", choices=get_args(Tracker), default="wandb", help="the package that logs (%(default)s)")
    parser.add_argument("--project", default="forage", help="its name there (%(default)s)")
    parser.add_argument("--name", help="name of the run there; the folder's by default")
    parser.add_argument("--once", action="store_true", help="log what is there, and do not wait for more")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds between two looks (%(default)s)")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds in which the run may begin")
    asked = parser.parse_args(words)
    # As Ctrl-C: what was logged is sent, and noted as such.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        logged = track(
            asked.run,
            asked.to,
            project=asked.project,
            name=asked.name,
            follow=not asked.once,
            every=asked.every,
            wait=asked.wait,
        )
    except (FileNotFoundError, ModuleNotFoundError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{logged} steps logged")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
