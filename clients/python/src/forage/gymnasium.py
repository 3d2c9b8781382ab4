"""Gymnasium: `forage/episode-v0`, one environment or many. Importing this module registers it.

```
import gymnasium, forage.gymnasium
env = gymnasium.make("forage/episode-v0", base_url="http://localhost:8000")
envs = gymnasium.make_vec("forage/episode-v0", num_envs=64, vectorization_mode="vector_entry_point", base_url=...)
```

An action is a turn's text, an observation what the policy reads next; everything else is in `info`, under the server's own names.
The rewards of an episode's steps add up to its score, `info["score"]["total"]`: a step is rewarded with what the environment pays for the
turn, and the last one with what is then left of the score. A fault is raised (`forage.Infra` and its like): it is never a reward of 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_shared_memory

from .client import Client
from .errors import Fault
from .wire import Info, Observation, Step

__all__ = ["BatchFault", "ForageEnv", "ForageVectorEnv", "Words"]

# No observation is longer in practice; Gymnasium wants a bound.
_LONGEST = 1 << 20
_LETTERS = "".join(map(chr, range(32, 127))) + "\n"


class Words(Text):
    """Texts of up to `max_length` characters, of any script.

    `gymnasium.spaces.Text` holds the characters it is given one by one; here these are only what `sample` draws from.
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        """Samples printable ASCII."""
        super().__init__(max_length, min_length=0, charset=_LETTERS, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short text, however long they may be."""
        if mask is None and probability is None:
            mask = (int(self.np_random.integers(0, min(self.max_length, 64) + 1)), None)
        return super().sample(mask, probability)

    def contains(self, x: Any) -> bool:
        """Whether `x` is text that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Texts of any script have no index of characters to be flattened by."""
        return False

    def __eq__(self, other: Any) -> bool:
        """Whether the same texts are in it."""
        return isinstance(other, Words) and self.max_length == other.max_length

    def __hash__(self) -> int:
        """By its bound."""
        return hash((Words, self.max_length))

    def __repr__(self) -> str:
        """Short."""
        return f"Words({self.max_length})"


@create_shared_memory.register(Words)
def _unshared(space: Words, n: int = 1, ctx: Any = None) -> Any:
    """Refuses: Gymnasium reads texts in shared memory once, before they are written, and every observation would be blank."""
    raise CustomSpaceError("texts do not pass through shared memory")


class BatchFault(Fault):
    """Some members of a vector had a fault.

    Attributes:
        faults: by number of the member.
        results: what `step` or `reset` would have returned. The other members took their turn, or began; one with a fault has an
            empty observation, the reward NaN and nothing in the infos, and its episode is truncated.
    """

    def __init__(self, faults: dict[int, Fault], results: tuple[Any, ...]) -> None:
        """Of at least one member."""
        member, first = next(iter(faults.items()))
        told = f"member {member} had a fault" if len(faults) == 1 else f"{len(faults)} members had a fault, the first"
        super().__init__(f"{told}: {first}", first.cause)
        self.faults = faults
        self.results = results


def _spaces(info: Info) -> tuple[Words, Words]:
    return Words(_LONGEST), Words(info.action_bytes // 4)


def _details(seen: Observation) -> dict[str, Any]:
    """`info`: what is known beside the text. What is None is left out, for a vector's infos are arrays."""
    score = None if seen.score is None else {"total": seen.score.total, "parts": dict(seen.score.parts)}
    known = vars(seen) | {"score": score}
    return {
        name: value
        for name, value in known.items()
        if name not in ("text", "terminated", "truncated") and value is not None
    }


def _reward(step: Step, paid: float) -> float:
    """The reward of a step after which an episode's add up to its score, `paid` being those before."""
    score = step.observation.score
    return step.reward if score is None else score.total - paid


def _seed(seed: int | None, rng: np.random.Generator) -> int:
    """The seed that was given; later ones follow from it, so that a seeded environment repeats itself."""
    return seed if seed is not None else int(rng.integers(1 << 63))


class ForageEnv(gymnasium.Env[str, str]):
    """One environment."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, base_url: str, token: str | None = None, render_mode: str | None = None, **kwargs: Any) -> None:
        """Opens it on the server, where it has its place until `close`.

        Args:
            base_url: of the server.
            token: the server's, where it has one.
            render_mode: `ansi` shows the episode so far.
            kwargs: `timeout` and `patience`, as `Client` takes them.

        Raises:
            Capacity: every place is taken.
        """
        self._client = Client(base_url, token, **kwargs)
        self.observation_space, self.action_space = _spaces(self._client.info())
        self.render_mode = render_mode
        self._shown = ""
        self._paid = 0.0
        self._one = self._client.make(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: of the episode; without a task in `options` it chooses the question.
            options: `task_id`, `task_index`, `member`.

        Raises:
            Fault: the server failed.
        """
        super().reset(seed=seed)
        (seen,) = self._one.reset(seeds=[_seed(seed, self.np_random)], options=[options or {}])
        if isinstance(seen, Fault):
            raise seen
        self._shown, self._paid = seen.text, 0.0
        return seen.text, _details(seen)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a turn.

        Raises:
            Fault: something behind the environment failed; the episode is over and has no reward.
            Conflict: the episode is over.
        """
        (step,) = self._one.step([action])
        if isinstance(step, Fault):
            raise step
        seen = step.observation
        self._shown += action + seen.text
        reward = _reward(step, self._paid)
        self._paid += reward
        return seen.text, reward, seen.terminated, seen.truncated, _details(seen)

    def render(self) -> str | None:
        """The episode so far, with `render_mode="ansi"`."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Gives the place back."""
        self._one.close()
        self._client.close()


class ForageVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], np.ndarray[Any, np.dtype[Any]]]):
    """Many environments, stepped in one request.

    A member whose episode is over is reset in the next step (Gymnasium's `NEXT_STEP`): there its action is not read, its reward
    is 0 and its observation is the next question's prompt.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, base_url: str, token: str | None = None, **kwargs: Any) -> None:
        """Opens them on the server, all or none; the arguments are those of `ForageEnv`."""
        self._client = Client(base_url, token, **kwargs)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(self._client.info())
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._many = self._client.make(num_envs)
        self._over = np.zeros(num_envs, dtype=bool)
        self._paid = np.zeros(num_envs)
        self._texts = [""] * num_envs

    def reset(
        self,
        *,
        seed: int | Iterable[int | None] | None = None,
        options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begins an episode in each, member `i` with the seed plus `i` where one is given for all.

        Args:
            seed: of all, or a list with one for each.
            options: those of `ForageEnv.reset` for all, or a list with one dict for each.

        Raises:
            BatchFault: some could not begin; the next `step` tries again to begin them.
            ValueError: there are more or fewer seeds or options than members.
        """
        given: list[int | None] = [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            given = [int(seed) + member for member in range(self.num_envs)]
        elif seed is not None:
            given = [None if one is None else int(one) for one in seed]
            self._one_each("seed", given)
        each: Sequence[dict[str, Any] | None]
        if options is None or isinstance(options, dict):
            each = [options] * self.num_envs
        else:
            self._one_each("option", options)
            each = options
        seeds = [_seed(one, self.np_random) for one in given]
        info: dict[str, Any] = {}
        info, faults = self._begin(list(range(self.num_envs)), seeds, each, info)
        results = tuple(self._texts), info
        if faults:
            raise BatchFault(faults, results)
        return results

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
        """Takes a turn in each, but for those that are reset.

        Returns:
            Observations, rewards [num_envs], terminations [num_envs], truncations [num_envs] and infos.

        Raises:
            BatchFault: some had a fault, whose episodes are over without a reward and are reset in the next step. Its `results` have
                what the others earned and read.
            ValueError: there are more or fewer actions than members.
        """
        self._one_each("action", actions)
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=bool)
        truncated = np.zeros(self.num_envs, dtype=bool)
        info: dict[str, Any] = {}
        over = [int(member) for member in np.flatnonzero(self._over)]
        playing = [int(member) for member in np.flatnonzero(~self._over)]
        faults: dict[int, Fault] = {}
        if playing:
            steps = self._many.step([actions[member] for member in playing], playing)
            for member, step in zip(playing, steps, strict=True):
                if isinstance(step, Fault):
                    faults[member] = step
                    continue
                seen = step.observation
                self._texts[member] = seen.text
                rewards[member] = _reward(step, self._paid[member])
                self._paid[member] += rewards[member]
                terminated[member], truncated[member] = seen.terminated, seen.truncated
                self._over[member] = seen.done
                info = self._add_info(info, _details(seen), member)
        if over:
            info, unbegun = self._begin(over, [_seed(None, self.np_random) for _ in over], [None] * len(over), info)
            faults |= unbegun
        for member in faults:
            self._over[member], self._texts[member] = True, ""
            rewards[member], truncated[member] = np.nan, True
        results = tuple(self._texts), rewards, terminated, truncated, info
        if faults:
            raise BatchFault(faults, results)
        return results

    def _begin(
        self, members: list[int], seeds: list[int], options: Sequence[dict[str, Any] | None], info: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[int, Fault]]:
        faults: dict[int, Fault] = {}
        begun = self._many.reset(members, seeds=seeds, options=[one or {} for one in options])
        for member, seen in zip(members, begun, strict=True):
            self._over[member], self._paid[member] = isinstance(seen, Fault), 0.0
            if isinstance(seen, Fault):
                faults[member], self._texts[member] = seen, ""
            else:
                self._texts[member] = seen.text
                info = self._add_info(info, _details(seen), member)
        return info, faults

    def _one_each(self, what: str, given: Sequence[Any]) -> None:
        if isinstance(given, str) or len(given) != self.num_envs:
            found = "a str" if isinstance(given, str) else f"{len(given)} {what}{'' if len(given) == 1 else 's'}"
            raise ValueError(f"{found} for {self.num_envs} environments; give a list with one for each")

    def close_extras(self, **kwargs: Any) -> None:
        """Gives the places back."""
        self._many.close()
        self._client.close()


# Gymnasium looks for no plug-ins: whoever makes the environment imports this module.
if "forage/episode-v0" not in gymnasium.registry:
    gymnasium.register(
        id="forage/episode-v0",
        entry_point="forage.gymnasium:ForageEnv",
        vector_entry_point="forage.gymnasium:ForageVectorEnv",
    )
