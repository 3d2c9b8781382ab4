"""An environment as a class: what `forage train` and `forage eval` play when it is served (`serve`)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

__all__ = ["Environment", "Question", "Reply"]

# The largest finite number of 32 bits.
_MOST_REWARD = float.fromhex("0x1.fffffep127")
_KINDS = '{"kind": "calls", "calls": [...]}, {"kind": "answer", "answer": STR} or {"kind": "invalid", "fault": STR}'


@dataclass(frozen=True)
class Question:
    """What an episode is about.

    Attributes:
        id: unique within its data set and split; a run refuses two questions with one id.
        text: what the policy is asked.
        golds: accepted answers, the best first: what the rewards `em` and `f1` compare with. One, several, or none where every
            weighted reward does without (`return`, say); kept as a tuple.
        evidence: ids of the passages that hold the evidence, where they are known; kept as a tuple.
        oracle: the turns of an episode that does well, which `--policy oracle` writes; without any it answers at once. Kept as a tuple.
        data_source: the data set.
        split: `train`, `dev` or `test`.
    """

    id: str
    text: str
    golds: Sequence[str] = ()
    evidence: Sequence[str] = ()
    data_source: str = ""
    split: str = "train"
    oracle: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuses what is not a string.

        Raises:
            TypeError: a field is not a string, or does not hold strings.
        """
        of = f"question {self.id!r}: "
        for name in ("id", "text", "data_source", "split"):
            _check(of + name, getattr(self, name))
        for name in ("golds", "evidence", "oracle"):
            object.__setattr__(self, name, _strings(of + name, getattr(self, name)))

    @classmethod
    def read(cls, task: Mapping[str, Any]) -> "Question":
        """From a task as forage writes it."""
        names = ("id", "golds", "evidence", "data_source", "split")
        # A step with a finding is a query, as generated questions have them, and no turn.
        turns = [step["query"] for step in task.get("oracle", ()) if not step["finding"]]
        return cls(text=task["question"], oracle=turns, **{name: task[name] for name in names if name in task})

    def task(self) -> dict[str, Any]:
        """The task as forage reads it."""
        fields = {name: getattr(self, name) for name in ("id", "golds", "evidence", "data_source", "split")}
        steps = [{"query": turn, "finding": ""} for turn in self.oracle]
        return {"question": self.text, "oracle": steps} | fields


@dataclass(frozen=True)
class Reply:
    """What an environment makes of a turn. `call`, `answer` and `invalid` make the usual ones.

    Attributes:
        text: what the policy reads next, put behind its turn as it is.
        reward: for this turn, finite: what the reward `return` adds up.
        done: whether the episode is over.
        kind: the turn as it was understood, in the form of records (`docs/environment-server.md`): `{"kind": "calls", "calls": [...]}`,
            `{"kind": "answer", "answer": "Ada"}` or `{"kind": "invalid", "fault": "no answer"}`.
        forced_prefix: text that the next turn begins with, without the policy having written it.
    """

    text: str = ""
    reward: float = 0.0
    done: bool = False
    kind: Mapping[str, Any] = field(default_factory=lambda: {"kind": "calls", "calls": [{"tool": "turn"}]})
    forced_prefix: str | None = None

    def __post_init__(self) -> None:
        """Refuses what cannot be sent or recorded, in the line that makes it.

        Raises:
            TypeError: a field is of another type, or `kind` holds what is not JSON.
            ValueError: `reward` is not finite in 32 bits, or `kind` is of none of the forms.
        """
        _check("text", self.text)
        _finite(self.reward)
        if not isinstance(self.done, bool):
            raise TypeError(f"done is {self.done!r}; it must be a bool")
        if self.forced_prefix is not None:
            _check("forced_prefix", self.forced_prefix)
        match self.kind:
            case (
                {"kind": "calls", "calls": [*_]}
                | {"kind": "answer", "answer": str()}
                | {"kind": "invalid", "fault": str()}
            ):
                pass
            case other:
                raise ValueError(f"kind is {other!r}; it must be {_KINDS}")
        try:
            json.dumps(self.kind, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"kind is not JSON: {error}") from error

    @classmethod
    def call(
        cls,
        tool: str,
        text: str,
        reward: float = 0.0,
        *,
        queries: Iterable[str] = (),
        shown: Iterable[str] = (),
        **arguments: Any,
    ) -> "Reply":
        """The policy used a tool and reads `text`.

        Args:
            tool: its name in records.
            text: what the policy reads next.
            reward: for this turn.
            queries: those that were sent to a retriever, one or several, which count as searches.
            shown: ids of the passages in `text`, one or several, the best first; without any, nobody knows whether something was found.
            arguments: the tool's, for records.

        Raises:
            TypeError: `tool`, `queries` or `shown` is not made of strings.
        """
        _check("tool", tool)
        asked, read = _strings("queries", queries), _strings("shown", shown)
        call = {"tool": tool, "arguments": arguments, "queries": list(asked), "shown": list(read)}
        return cls(text, reward, kind={"kind": "calls", "calls": [call]})

    @classmethod
    def answer(cls, answer: object, reward: float = 0.0) -> "Reply":
        """The policy answered, which ends the episode; `em` and `f1` compare the answer with the golds."""
        return cls(reward=reward, done=True, kind={"kind": "answer", "answer": str(answer)})

    @classmethod
    def invalid(cls, fault: str, text: str = "", reward: float = 0.0, *, done: bool = False) -> "Reply":
        """The turn is none that the environment knows: `fault` says why, `text` tells the policy."""
        return cls(text, reward, done, {"kind": "invalid", "fault": fault})


class Environment:
    """One episode at a time: a subclass has `reset` and `step`, and `questions` where no config names a file of them.

    An instance is made for each episode, and its methods are called one after the other; those of other episodes run beside
    them, in threads. An episode must be a function of its question, seed and turns, or it cannot be checked and replayed: draw
    from `random.Random(seed)`.

    What a policy writes is never a fault: answer it with what is wrong (`Reply.invalid`). An exception is a fault of the
    environment: its episode ends without a reward, is told and counted, and no group learns from it.

    Attributes:
        id: `NAMESPACE/NAME-vN`, which records and `forage serve env` tell.
        max_turns: most turns of an episode.
        max_turn_tokens: most tokens of a turn.
        max_episode_tokens: most tokens of an episode, prompt and replies included.
        stop: strings that end a turn; they are part of it.
    """

    id: str = "mine/environment-v0"
    max_turns: int = 4
    max_turn_tokens: int = 128
    max_episode_tokens: int = 1024
    stop: tuple[str, ...] = ("</answer>",)

    @classmethod
    def questions(cls, split: str, count: int, seed: int) -> Iterable[Question]:
        """The first `count` questions of a split, for `[data.own]`; splits must share nothing."""
        raise NotImplementedError(f"{cls.__name__} has no `questions`; write it, or name files in [data.files]")

    def reset(self, question: Question, seed: int) -> str:
        """Begins the episode; returns the opening prompt, which follows from the question alone: members of a group differ in `seed`."""
        raise NotImplementedError(f"{type(self).__name__} has no `reset`")

    def step(self, turn: str) -> Reply:
        """Reacts to what the policy wrote."""
        raise NotImplementedError(f"{type(self).__name__} has no `step`")

    def close(self) -> None:
        """Gives back what the episode holds; called once, however it ended."""


def _strings(name: str, value: object) -> tuple[str, ...]:
    """One string, or several."""
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r}; it must be a list of str")
    kept = (value,) if isinstance(value, str) else tuple(value)
    for place, one in enumerate(kept):
        _check(f"{name}[{place}]", one)
    return kept


def _finite(reward: object) -> None:
    """A number that 32 bits hold, as forage keeps it; a comparison is one in Python."""
    if not isinstance(reward, Real):
        raise TypeError(f"reward is {reward!r}; it must be a number")
    try:
        finite = abs(float(reward)) <= _MOST_REWARD
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError(f"reward is {reward!r}; it must be a finite number of 32 bits")


def _check(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it must be a str")
