"""Many environments in one request."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from .errors import Fault, ForageError, Refused, SessionLost, from_answer
from .http import Closing, Http
from .wire import Finish, Observation, Step

__all__ = ["Turn", "Vector"]

_T = TypeVar("_T")

Turn = str | tuple[str, Finish]
"""A turn's text, or the text and why it ended."""


class Vector(Closing):
    """Environments that outlive their episodes. One thread at a time.

    Each member has its own fault: in place of its result it has a `Fault`, and the others are not lost with it. A member whose
    episode is over, or that had a fault, is reset before it is stepped again. One that the server has closed, because nothing was asked
    of it for long or because the server began anew, is opened again when it is reset; so is one that is still at a turn whose answer was
    lost.

    Attributes:
        env_ids: names of the members.
    """

    def __init__(self, http: Http, num_envs: int) -> None:
        """Opens `num_envs` environments, all or none."""
        self._http = http
        self._answered = 0
        self.env_ids = self._made(num_envs)

    def _made(self, num_envs: int) -> list[str]:
        made: list[str] = self._http.post("/gym/make", {"num_envs": num_envs})["env_ids"]
        return made

    def __len__(self) -> int:
        """How many there are."""
        return len(self.env_ids)

    def reset(
        self,
        members: Sequence[int] | None = None,
        *,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[dict[str, Any] | None] | None = None,
    ) -> list[Observation | Fault]:
        """Begins episodes.

        Args:
            members: which ones, all by default.
            seeds: one for each of them.
            options: `task_id`, `task_index` and `member` for each of them.

        Returns:
            As many as `members`, in their order.

        Raises:
            Refused: what was asked of a member was wrong.
            Capacity: there are no places for members that are opened again.
            ValueError: the environments are closed.
        """
        ids = self._ids(members)
        places = list(range(len(ids)) if members is None else members)
        begun = self._begun(ids, seeds, options)
        lost = {place: seen.cause for place, seen in enumerate(begun) if isinstance(seen, SessionLost)}
        if lost:
            if at_work := [ids[place] for place, cause in lost.items() if cause == "busy"]:
                self._http.post("/gym/close", {"env_ids": at_work})
            made = self._made(len(lost))
            for place, name in zip(lost, made, strict=True):
                self.env_ids[places[place]] = name
            again = self._begun(made, _of(seeds, lost), _of(options, lost))
            for place, seen in zip(lost, again, strict=True):
                begun[place] = seen
        return begun

    def _begun(
        self, ids: list[str], seeds: Sequence[int | None] | None, options: Sequence[dict[str, Any] | None] | None
    ) -> list[Observation | Fault]:
        if not ids:
            return []
        answer = self._http.post("/gym/reset", {"env_ids": ids, "seed": _list(seeds), "options": _list(options)})
        rows = zip(answer["observations"], answer["infos"], answer["errors"], strict=True)
        return [Observation.read(info, text) if error is None else _left(error) for text, info, error in rows]

    def step(self, turns: Sequence[Turn], members: Sequence[int] | None = None) -> list[Step | Fault]:
        """Takes a turn with each of `members`, all by default.

        Called again after `Unreachable`, it gets the answers that were lost and takes no second turn; after `Refused`, members
        that were not refused have taken their turn, and it gets their answers.

        Raises:
            TypeError: `turns` is a string, or a turn is neither a string nor a pair.
            ValueError: the environments are closed.
            Refused: a turn was wrong, or a member is not in the middle of an episode.
        """
        if isinstance(turns, str):
            raise TypeError("turns is a str, and not a list of them; write one for each member")
        body = {
            "env_ids": self._ids(members),
            "actions": [_action(turn) for turn in turns],
            "request_id": f"step-{self._answered}",
        }
        answer = self._http.post("/gym/step", body)
        columns = ("observations", "rewards", "infos", "errors")
        steps: list[Step | Fault] = []
        for text, reward, info, error in zip(*(answer[column] for column in columns), strict=True):
            if error is not None:
                steps.append(_fault(error))
                continue
            observation = Observation.read(info, text)
            steps.append(Step(observation, reward, observation.done))
        # Not before: where a member is refused, the others are asked again for what they have answered.
        self._answered += 1
        return steps

    def close(self) -> None:
        """Gives the places back; closing twice is not an error."""
        if self.env_ids:
            self._http.post("/gym/close", {"env_ids": self.env_ids})
            self.env_ids = []

    def _ids(self, members: Sequence[int] | None) -> list[str]:
        if not self.env_ids:
            raise ValueError("the environments are closed; make others")
        return self.env_ids if members is None else [self.env_ids[member] for member in members]


def _action(turn: Turn) -> str | dict[str, str]:
    if isinstance(turn, str):
        return turn
    if not isinstance(turn, tuple) or len(turn) != 2:
        raise TypeError(f"a turn is {turn!r}; it must be a str, or a str and why it ended")
    return {"text": turn[0], "finish": turn[1]}


def _left(entry: dict[str, Any]) -> Fault:
    """The fault of a member that is reset. One that is still at a turn whose answer was lost is lost to its client."""
    return SessionLost(entry["message"], "busy") if entry["cause"] == "busy" else _fault(entry)


def _of(values: Sequence[_T] | None, places: Iterable[int]) -> list[_T] | None:
    return None if values is None else [values[place] for place in places]


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _fault(entry: dict[str, Any]) -> Fault:
    """A member's fault; a request that was wrong is raised."""
    error: ForageError = from_answer(0, entry)
    if isinstance(error, Fault):
        return error
    assert isinstance(error, Refused)
    raise error
