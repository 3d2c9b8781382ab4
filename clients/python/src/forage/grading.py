"""Grades of answers, by the program's own rules."""

import json
import tempfile
from collections.abc import Iterable, Sequence

from .launch import told

__all__ = ["grade", "grade_many"]


def grade(answer: str, golds: str | Sequence[str]) -> dict[str, float]:
    """What each rule pays for an answer: `em`, `sub_em`, `f1`, and the graders of published systems.

    The answer is graded as an episode that gives it at once, without a search. Each call starts the program once: `grade_many` is
    for many answers.

    Args:
        answer: what was answered.
        golds: the accepted answers, one or several.

    Raises:
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    return grade_many([(answer, golds)])[0]


def grade_many(answers: Iterable[tuple[str, str | Sequence[str]]]) -> list[dict[str, float]]:
    """The grades of pairs of an answer and its golds, in their order.

    Raises:
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for answer, golds in answers:
            row = {"answer": answer, "gold": golds if isinstance(golds, str) else list(golds)}
            file.write(json.dumps(row) + "\n")
        file.flush()
        return [json.loads(line) for line in told("judge", "grade", file.name, "--json").splitlines()]
