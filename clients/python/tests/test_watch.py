"""`forage runs watch` at a terminal: what it takes of it, what it draws, and that it gives it back."""

import fcntl
import functools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import BINARY

pytestmark = pytest.mark.skipif(not BINARY, reason="there is no forage program; write its path to FORAGE_BIN")

TAKEN, GIVEN_BACK = "\x1b[?1049h", "\x1b[?1049l"
HIDDEN_CURSOR, CURSOR = "\x1b[?25l", "\x1b[?25h"
SECONDS = 30


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 60 steps, of which half are done."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("seed = 1\n[grpo]\nsteps = 60\n")
    rows = [{"step": step, "reward/mean": step / 100, "val/em": 0.25, "time/rollout_s": 2.0} for step in range(30)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Terminal:
    """A pseudo-terminal and the program at it."""

    def __init__(self, ours: int, its: int, process: subprocess.Popen[bytes], before: list[Any]) -> None:
        self.ours, self.its, self.process = ours, its, process
        # The attributes that the program found.
        self.before = before
        self.written = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def read(self, seconds: float) -> bool:
        """Whether something was written in that time."""
        ready = select.select([self.ours], [], [], seconds)[0]
        if ready:
            self.written += os.read(self.ours, 65536).decode(errors="replace")
        return bool(ready)

    def wait_for(self, found: str) -> list[str]:
        """The lines of the screen once it says that and is drawn to its end, where the cursor is hidden."""
        end = time.monotonic() + SECONDS
        while found not in "\n".join(lines := screen(self.written)) or HIDDEN_CURSOR not in self.written:
            assert time.monotonic() < end, lines
            self.read(0.1)
        return lines

    def ended(self) -> int:
        """The exit code, once all that was written is read."""
        code = self.process.wait(SECONDS)
        # What was written passes through the kernel's buffers after that.
        while self.read(0.1):
            pass
        return code


def screen(written: str) -> list[str]:
    """The lines that a terminal shows after that."""
    cells: dict[tuple[int, int], str] = {}
    line, column = 1, 1
    for move, erase, _, text in re.findall(r"\x1b\[(\d+;\d+)H|\x1b\[(2J)|(\x1b\[[?\d;]*[A-Za-z])|([^\x1b]+)", written):
        if move:
            line, column = map(int, move.split(";"))
        elif erase:
            cells.clear()
        for letter in text:
            cells[line, column] = letter
            column += 1
    last = max((line for line, _ in cells), default=0)
    rows = [{column: letter for (line, column), letter in cells.items() if line == row} for row in range(1, last + 1)]
    return ["".join(row.get(column, " ") for column in range(1, max(row, default=0) + 1)).rstrip() for row in rows]


@contextmanager
def watching(*arguments: str | Path) -> Iterator[Terminal]:
    """`forage runs watch` at a terminal of 80 columns and 24 lines, its own session's."""
    ours, its = pty.openpty()
    login = functools.partial(os.login_tty, its)
    terminal: Terminal | None = None
    try:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        before = termios.tcgetattr(its)
        with subprocess.Popen([BINARY, "runs", "watch", *arguments], preexec_fn=login, env=environment) as process:
            terminal = Terminal(ours, its, process, before)
            try:
                yield terminal
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(its)


def test_a_terminal_is_taken_and_given_back(run):
    for leave in ["q", "\x1b", "\x03", signal.SIGINT, signal.SIGTERM]:
        with watching(run) as terminal:
            lines = terminal.wait_for("q quit")
            assert TAKEN in terminal.written
            raw = termios.tcgetattr(terminal.its)
            assert not raw[3] & (termios.ICANON | termios.ECHO | termios.ISIG), "keys are read one by one, unechoed"
            assert "run: 30 of 60 steps are done" in lines[0]
            assert len(lines) == 24
            assert max(map(len, lines)) <= 80
            assert lines[-1].startswith("q quit")
            if isinstance(leave, signal.Signals):
                terminal.process.send_signal(leave)
            else:
                terminal.press(leave)
            assert terminal.ended() == 0, leave
            assert termios.tcgetattr(terminal.its) == terminal.before, leave
            for taken, back in [(TAKEN, GIVEN_BACK), (HIDDEN_CURSOR, CURSOR)]:
                assert terminal.written.rindex(back) > terminal.written.rindex(taken), leave


def test_the_screen_follows_the_size_and_the_run(run):
    with watching(run) as terminal:
        terminal.wait_for("q quit")
        terminal.written = ""
        terminal.resize(60, 20)
        lines = terminal.wait_for("q quit")
        assert len(lines) == 20
        assert max(map(len, lines)) <= 60
        with (run / "metrics.jsonl").open("a") as rows:
            rows.write(json.dumps({"step": 30, "reward/mean": 0.3}) + "\n")
        terminal.wait_for("run: 31 of 60 steps are done")
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_folder_without_a_run_leaves_the_terminal_alone(tmp_path):
    with watching(tmp_path / "nothing") as terminal:
        assert terminal.ended() != 0
        assert "nothing" in terminal.written
        assert TAKEN not in terminal.written
        assert termios.tcgetattr(terminal.its) == terminal.before
