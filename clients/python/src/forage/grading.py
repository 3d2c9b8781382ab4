"""Grades of answers, by the program's own rules."""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .launch import command

__all__ = ["grade", "grade_many"]


def grade(answer: str, golds: str | Sequence[str]) -> dict[str, float]:
    """What each rule pays for an answer: `em`, `sub_em`, `f1`, and the graders of published systems.

    The answer is graded as an episode that gives it at once, without a search. Each call starts the program once: `grade_many` is
    for many answers.

    Args:
        answer: what was answered.
        golds: the accepted answers, one or several.

    Raises:
        TypeError: `answer` or `golds` is not made of strings.
        ValueError: `golds` is empty.
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    return _graded([_row("", answer, golds)])[0]


def grade_many(answers: Iterable[tuple[str, str | Sequence[str]]]) -> list[dict[str, float]]:
    """The grades of pairs of an answer and its golds, in their order; of no pairs, no grades.

    Raises:
        TypeError: one is not a pair of an answer and its golds; with its place.
        ValueError: golds are empty; with their place.
        FileNotFoundError: there is no forage program.
        RuntimeError: it failed; with its error.
    """
    return _graded([_row(f"answers[{place}]: ", *_pair(place, pair)) for place, pair in enumerate(answers)])


def _pair(place: int, pair: object) -> tuple[Any, Any]:
    # Two letters, or the keys of a row, would be taken for a pair.
    kept = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str | bytes | Mapping) else ()
    if len(kept) != 2:
        raise TypeError(f"answers[{place}] is {pair!r}; it must be a pair of an answer and its golds")
    return kept[0], kept[1]


def _row(of: str, answer: object, golds: object) -> dict[str, Any]:
    if not isinstance(answer, str):
        raise TypeError(f"{of}answer is {answer!r}; it must be a str")
    if not isinstance(golds, Iterable) or isinstance(golds, bytes):
        raise TypeError(f"{of}golds is {golds!r}; it must be a str or a list of them")
    kept = [golds] if isinstance(golds, str) else list(golds)
    for place, one in enumerate(kept):
        if not isinstance(one, str):
            raise TypeError(f"{of}golds[{place}] is {one!r}; it must be a str")
    if not kept:
        raise ValueError(f"{of}golds is empty; give at least one accepted answer")
    return {"answer": answer, "gold": kept}


def _graded(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    # The program takes a file without answers for a mistake.
    if not rows:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        return [json.loads(line) for line in command("judge", "grade", file.name, "--json").splitlines()]
