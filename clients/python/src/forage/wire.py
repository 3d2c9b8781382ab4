"""What the server sends, as types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Finish", "Info", "Observation", "Score", "Step", "Task", "Tool"]

Finish = Literal["stop", "eos", "length", "context"]
"""Why a turn ended: a stop string, the end-of-sequence token, the turn's limit of tokens, the episode's limit of tokens."""


@dataclass(frozen=True)
class Score:
    """The reward of a finished episode: `total`, and every reward by name in `parts`."""

    total: float
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Observation:
    """What a policy reads, and what is known of its episode.

    Attributes:
        text: what the policy reads next: the opening prompt after a reset, later what the environment wrote; empty at the end.
        turn: turns taken.
        max_turns: how many there may be.
        stop: strings that end a turn; they are for the engine that samples, which must keep them: they are part of the turn.
        forced_prefix: text the next turn begins with. The server puts it in front of a turn that does not begin with it.
        seed: of the episode.
        terminated: the task itself ended.
        truncated: a limit ended it.
        kind: the turn as it was understood: `calls` with tools, queries and ids of documents shown, `answer` or `invalid`; None
            after a reset.
        ending: how the episode ended; None before.
        score: of the whole episode; None before its end.
        ignored_chars: characters behind the stop string, which nobody read.
    """

    text: str
    episode_id: str
    task_id: str
    question: str
    data_source: str
    turn: int
    max_turns: int
    stop: tuple[str, ...]
    forced_prefix: str | None
    seed: int
    terminated: bool
    truncated: bool
    kind: Mapping[str, Any] | None
    ending: Mapping[str, Any] | None
    score: Score | None
    ignored_chars: int

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated

    @classmethod
    def read(cls, fields: Mapping[str, Any], text: str | None = None) -> "Observation":
        """From an observation's JSON, or with `text` from a Gymnasium answer's `info`, which lacks it."""
        info = fields["info"]
        score = info["score"]
        return cls(
            text=fields["text"] if text is None else text,
            episode_id=fields["episode_id"],
            task_id=fields["task_id"],
            question=fields["question"],
            data_source=fields["data_source"],
            turn=fields["turn"],
            max_turns=fields["max_turns"],
            stop=tuple(fields["stop"]),
            forced_prefix=fields["forced_prefix"],
            seed=fields["seed"],
            terminated=fields["terminated"],
            truncated=fields["truncated"],
            kind=info["kind"],
            ending=info["ending"],
            score=None if score is None else Score(score["total"], dict(score["parts"])),
            ignored_chars=info["ignored_chars"],
        )


@dataclass(frozen=True)
class Step:
    """The answer to a turn.

    `reward` is what the environment paid for the turn, and on the last turn that plus the episode's score.
    """

    observation: Observation
    reward: float
    done: bool


@dataclass(frozen=True)
class Tool:
    """A tool whose call is a turn; it takes one string."""

    name: str
    description: str
    parameter: str


@dataclass(frozen=True)
class Info:
    """What is served.

    Attributes:
        env_id: `forage/NAME-vN`; of a class in Python, its own `id`.
        tasks: number of questions.
        max_turns: most turns of an episode.
        max_turn_tokens: most tokens of a turn; the client keeps this limit, for it owns the tokens.
        max_episode_tokens: most tokens of an episode, prompt and observations included; the client keeps this one too.
        stop: strings that end a turn.
        append_eos_after_stop: whether the end-of-sequence token follows a turn that a stop string ended, written by nobody.
        tools: the environment's own, without `write_turn`.
        sessions: places for sessions.
        action_bytes: most bytes of a turn.
    """

    env_id: str
    tasks: int
    max_turns: int
    max_turn_tokens: int
    max_episode_tokens: int
    stop: tuple[str, ...]
    append_eos_after_stop: bool
    tools: tuple[Tool, ...]
    sessions: int
    action_bytes: int

    def restored(self, text: str) -> str:
        """A turn's text with the stop string that an engine cut off: that of a tag that was opened and not closed."""
        for stop in self.stop:
            tag = stop.replace("</", "<")
            if text.count(tag) > text.count(stop):
                return text + stop
        return text

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Info":
        """From the answer of `/info`."""
        spec, limits = body["spec"], body["limits"]
        return cls(
            env_id=spec["id"],
            tasks=body["tasks"],
            max_turns=spec["max_turns"],
            max_turn_tokens=spec["max_turn_tokens"],
            max_episode_tokens=spec["max_episode_tokens"],
            stop=tuple(spec["stop"]),
            append_eos_after_stop=spec["append_eos_after_stop"],
            tools=tuple(_tools(body["tools"])),
            sessions=limits["sessions"],
            action_bytes=limits["action_bytes"],
        )


def _tools(listed: list[Mapping[str, Any]]) -> Iterator[Tool]:
    for tool in listed:
        (parameter,) = tool["input_schema"]["required"]
        if tool["name"] != "write_turn":
            yield Tool(tool["name"], tool["description"], parameter)


@dataclass(frozen=True)
class Task:
    """A question that may be asked, without its answer."""

    task_index: int
    task_id: str
    question: str
    data_source: str
    split: str

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Task":
        """From a row of `/tasks`; a server may send more than is read."""
        return cls(**{field: fields[field] for field in cls.__dataclass_fields__})
