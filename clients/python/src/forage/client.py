"""The client: episodes one by one. `vector` has many at once."""

from collections.abc import Iterator
from uuid import uuid4

from .errors import Fault, Invalid
from .http import Closing, Http
from .vector import Vector
from .wire import Finish, Info, Observation, Step, Task

__all__ = ["Client", "Session"]


class Client(Closing):
    """A server of `forage serve env`. Threads may share it."""

    def __init__(
        self, base_url: str, token: str | None = None, *, timeout: float = 150.0, patience: float = 0.0
    ) -> None:
        """Connects to nothing yet.

        Args:
            base_url: like `http://localhost:8000`.
            token: the server's, where it has one; blanks and line ends around it are dropped.
            timeout: seconds to wait for each piece of an answer. More than the server's `--step-timeout-seconds` (120), or a slow
                step is `Unreachable` in place of `Infra`.
            patience: seconds to go on asking while the server is full or lacks memory, before `Capacity` is raised. A member of
                a `Vector` has its `Capacity` at once.

        Raises:
            ValueError: `base_url` is not an address, or `token` holds what no header can.
        """
        self.http = Http(base_url, token, timeout, patience)

    def info(self) -> Info:
        """What is served: limits, stop strings, tools.

        Raises:
            Invalid: it is not an environment that is served.
            ForageError: see `errors`.
        """
        served = self.http.get("/info")
        if not isinstance(served, dict) or "spec" not in served:
            told = f"{self.http.base_url} serves no environment; `forage.Retriever` asks what `forage serve retriever` serves"
            raise Invalid(told, "other_server")
        return Info.read(served)

    def ready(self) -> bool:
        """Whether new episodes are taken; False also where nobody answers."""
        try:
            self.http.get("/readyz")
        except (Fault, Invalid):
            return False
        return True

    def close(self) -> None:
        """Closes this thread's connection; sessions stay as they are, and the next request opens another."""
        self.http.close()

    def tasks(self, limit: int | None = None) -> Iterator[Task]:
        """The questions in order, all or the first `limit`."""
        seen = 0
        while limit is None or seen < limit:
            most = 1000 if limit is None else min(1000, limit - seen)
            page = self.http.get(f"/tasks?offset={seen}&limit={most}")["tasks"]
            yield from map(Task.read, page)
            seen += len(page)
            if not page:
                return

    def reset(
        self,
        *,
        seed: int | None = None,
        task_id: str | None = None,
        task_index: int | None = None,
        member: int | None = None,
        patient: bool = True,
    ) -> "Session":
        """Begins an episode.

        Args:
            seed: of the episode, at least 0; without a task it chooses the question. Without both it is the next in order.
            task_id: the question by its id.
            task_index: the question by its place.
            member: number of the episode in its group; the seed by default.
            patient: whether to wait for a place as long as the client does.

        Raises:
            Capacity: every place is taken.
            ForageError: see `errors`.
        """
        # Named here, so that asking again after a lost answer begins it anew in place of a second one.
        body = {
            "episode_id": uuid4().hex,
            "seed": seed,
            "task_id": task_id,
            "task_index": task_index,
            "member": member,
        }
        answer = self.http.post("/reset", body, patient=patient)
        return Session(self.http, Observation.read(answer["observation"]))

    def make(self, num_envs: int) -> Vector:
        """Opens `num_envs` environments that are reset and stepped together.

        Raises:
            Capacity: there are fewer places.
        """
        return Vector(self.http, num_envs)


class Session(Closing):
    """One episode. As a context manager it closes itself.

    Attributes:
        observation: the last one.
    """

    def __init__(self, http: Http, observation: Observation) -> None:
        """Of an episode that was begun."""
        self._http = http
        self.observation = observation

    @property
    def reward(self) -> float | None:
        """What the whole episode is paid, as `forage train` pays it: its score. None before its end, and after a fault.

        The rewards of steps add up to more where turns are paid too: that sum has them beside the score.
        """
        score = self.observation.score
        return None if score is None else score.total

    def step(self, text: str, finish: Finish | None = None) -> Step:
        """Takes a turn.

        Called again after `Unreachable`, it gets the answer that was lost and takes no second turn.

        Args:
            text: what the policy wrote.
            finish: why it stopped; by default `stop` where the text holds a stop string and else `eos`.

        Raises:
            Infra: something behind the environment failed; the episode is over and has no reward.
            Conflict: the episode is over.
            ForageError: see `errors`.
        """
        return self._act({"text": text, **({} if finish is None else {"finish": finish})})

    def call(self, tool: str, **arguments: str) -> Step:
        """Takes a turn by calling a tool of `Info.tools`, which writes the turn.

        Raises:
            Invalid: there is no such tool, or the argument does not fit (it holds a closing tag, say); no turn was taken.
            ForageError: as for `step`.
        """
        return self._act({"type": "call_tool", "tool_name": tool, "arguments": arguments})

    def _act(self, action: dict[str, object]) -> Step:
        seen = self.observation
        body = {"episode_id": seen.episode_id, "action": action, "request_id": f"turn-{seen.turn}"}
        answer = self._http.post("/step", body)
        fields = answer["observation"]
        if fields.get("error"):
            raise Invalid(fields["error"]["message"], fields["error"]["error_type"])
        self.observation = Observation.read(fields)
        return Step(self.observation, answer["reward"], answer["done"])

    def close(self) -> None:
        """Gives the place back. An episode that is over has none; closing twice is not an error."""
        if not self.observation.done:
            self._http.post("/close", {"episode_id": self.observation.episode_id})
